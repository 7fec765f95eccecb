"""One module a format; each renders a Report to text."""
