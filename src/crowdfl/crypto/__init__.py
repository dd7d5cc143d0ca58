"""The cryptographic core: pure mathematics on integers and byte blocks, with no disk, network or clock."""
