"""Who may look at the page of `camshaft watch`: whoever has its token, and nobody else."""

import pytest

from camshaft.handlers.tools.report import make_server


@pytest.fixture
def root(server):
    return f"http://127.0.0.1:{server.server_port}/"


@pytest.fixture
def token(server):
    return server.page_address.partition("=")[2]


def test_the_printed_address_gives_a_cookie_and_leads_to_the_address_without_the_token(
    server, visit, token
):
    answer = visit(server.page_address)
    assert answer.status == 200
    assert answer.getheader("Refresh") == "0; url=/"
    assert answer.getheader("Cache-Control") == "no-store"
    assert token.encode() not in answer.body
    name = f"camshaft-{server.server_port}"
    told = answer.getheader("Set-Cookie")
    assert told == f"{name}={token}; HttpOnly; SameSite=Strict; Path=/"


@pytest.mark.parametrize("path", ["", "data.json", "image/0.png", "nowhere"])
def test_without_the_cookie_every_path_is_refused_and_the_answer_says_what_to_do(
    root, visit, path, ask
):
    assert ask()[0].status == 200
    for method in ("GET", "HEAD"):
        answer = visit(root + path, method)
        assert answer.status == 403
        assert answer.getheader("Set-Cookie") is None
    answer = visit(root + path)
    assert b"Open the whole address that camshaft watch printed" in answer.body
    assert b"run" not in answer.body.replace(b"running", b"")


@pytest.mark.parametrize("given", ["", "{cut}", "%C3%A9", "{token}&x=1", "{other}"])
def test_a_wrong_token_opens_nothing(server, root, token, visit, tmp_path, given):
    with make_server([tmp_path / "run"]) as second:
        other = second.page_address.partition("=")[2]
    assert other != token
    given = given.format(token=token, cut=token[:-1], other=other)
    assert visit(f"{root}?token={given}").status == 403
    assert visit(root, Cookie=f"camshaft-{server.server_port}={given}").status == 403


def test_only_the_cookie_of_this_port_counts_and_cookies_of_others_do_no_harm(
    server, root, token, visit
):
    name = f"camshaft-{server.server_port}"
    for wrong in (
        f"camshaft-1={token}",
        f"x{name}={token}",
        token,
        f"{name}",
        ";;;",
        "=",
        f"={token}",
    ):
        assert visit(root, Cookie=wrong).status == 403
    jupyter = '_xsrf="2|a|b"; username-localhost-8888="2|1:0|10:17|23:x"; {}=[]; odd name=1;'
    assert visit(root, Cookie=f"{jupyter}{name}=old; {name}={token}").status == 200


def test_the_cookie_has_the_port_that_the_browser_sees_as_ssh_may_forward_another(
    server, visit, token
):
    port = server.server_port
    for host, name in (("localhost:9000", "camshaft-9000"), ("127.0.0.1", "camshaft-80")):
        answer = visit(f"http://{host}/?token={token}", port=port)
        cookie = answer.getheader("Set-Cookie").partition(";")[0]
        assert cookie == f"{name}={token}"
        assert visit(f"http://{host}/data.json", port=port, Cookie=cookie).status == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example:{port}", "127.0.0.1.evil.example:{port}", "", "x127.0.0.1:{port}"),
        *("localhost:{port}@evil.example", "localhost:port"),
    ],
)
def test_a_request_by_another_name_is_refused_though_it_has_the_token(server, visit, token, host):
    host = host.format(port=server.server_port)
    for address in (f"?token={token}", "data.json"):
        cookie = f"camshaft-{server.server_port}={token}; camshaft-80={token}"
        answer = visit(
            f"{server.page_address.partition('?')[0]}{address}", Host=host, Cookie=cookie
        )
        assert answer.status == 403
        assert answer.getheader("Set-Cookie") is None


@pytest.mark.parametrize("host", ["localhost:{port}", "[::1]:{port}", "LOCALHOST:{port}"])
def test_this_machine_has_other_names(server, visit, token, host):
    host = host.format(port=server.server_port)
    assert visit(server.page_address, Host=host).status == 200


def test_it_listens_on_loopback_alone(server):
    assert server.server_address[0] == "127.0.0.1"


def test_every_answer_keeps_other_sites_and_the_referrer_out(server, root, visit, ask):
    found = [ask(path)[0] for path in ("/", "/data.json", "/nowhere")]
    found += [visit(root), visit(server.page_address), visit(root, "POST")]
    assert [answer.status for answer in found] == [200, 200, 404, 403, 200, 501]
    for answer in found:
        assert answer.getheader("Referrer-Policy") == "no-referrer"
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert answer.getheader("X-Frame-Options") == "DENY"
        assert answer.getheader("Content-Security-Policy") == "frame-ancestors 'none'"
        assert answer.getheader("Cross-Origin-Resource-Policy") == "same-origin"


def test_the_token_is_in_no_answer_but_its_cookie_and_in_no_text_of_the_server(
    server, root, token, visit, ask
):
    for answer, body in (ask(), ask("/data.json"), ask("/nowhere"), ask(f"/?token={token}x")):
        assert token.encode() not in body
        assert token not in str(answer.headers)
    assert token not in repr(server)
    assert token.encode() not in visit(f"{root}nowhere?token={token}").body
