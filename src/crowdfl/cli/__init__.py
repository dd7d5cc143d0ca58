"""The command line: parses options, calls the layers below, prints. No decision is taken here."""
