"""What a page about runs is made of: what is read, what is drawn of it, and the page itself."""
