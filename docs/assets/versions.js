// Beside the folder of each version a server may hold versions.json, as mike writes it:
// [{"version": "0.2.0", "title": "0.2.0"}, ...]. Pages that are opened from a folder show their own version.
const label = document.querySelector(".version")
if (label && location.protocol.startsWith("http")) {
  const above = new URL(label.dataset.versions + "/../", location.href)
  fetch(new URL("versions.json", above))
    .then((answer) => (answer.ok ? answer.json() : []))
    .then((versions) => {
      if (versions.length < 2) return
      const choice = document.createElement("select")
      choice.className = "version"
      choice.title = "Version"
      for (const { version, title } of versions)
        choice.add(new Option(title ?? version, version, false, version === label.textContent))
      choice.onchange = () => (location.href = new URL(choice.value + "/", above))
      label.replaceWith(choice)
    })
    .catch(() => undefined)
}
