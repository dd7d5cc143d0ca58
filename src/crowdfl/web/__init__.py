"""Pages that services serve: the phone, which takes part in a browser, and the consoles of an operator and a requester.

The pages are ES modules, served as they are, or to phones in a few files (`bundle`).
`common/` is what they share, `vendor/` holds libraries with version and hash.
"""
