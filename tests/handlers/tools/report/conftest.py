"""A server of a run's page in a thread, and questions to it."""

import http.client
import threading

import pytest

from camshaft.handlers.tools.report import make_server


@pytest.fixture
def server(tmp_path):
    with make_server([tmp_path / "run"]) as made:
        thread = threading.Thread(target=made.serve_forever, args=[0.01])
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def request(address, method="GET", port=None, **headers):
    """The answer to one request by this address, of a port that may be forwarded from another."""
    host, _, path = address.removeprefix("http://").partition("/")
    name, _, own = host.partition(":")
    connection = http.client.HTTPConnection(name, port or int(own), timeout=60)
    connection.request(method, f"/{path}", headers={"Host": host, **headers})
    answer = connection.getresponse()
    answer.body = answer.read()
    connection.close()
    return answer


@pytest.fixture
def visit():
    """Asks once, as who has no cookie."""
    return request


@pytest.fixture
def ask(server):
    """Asks the server, as a browser that has its cookie; gives the answer and its body."""
    cookie = request(server.page_address).getheader("Set-Cookie").partition(";")[0]
    root = server.page_address.partition("?")[0]

    def one(path="/", method="GET", **headers):
        answer = request(root + path[1:], method, **{"Cookie": cookie, **headers})
        return answer, answer.body

    one.cookie = cookie
    return one
