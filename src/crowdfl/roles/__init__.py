"""The five roles: decisions and state, through ports (a store, a clock, a peer). No HTTP, no SQL."""
