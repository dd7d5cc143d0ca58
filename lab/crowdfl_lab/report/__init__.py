"""How the laboratory shows what it found: one result model, one table, one plot style, one HTML page."""
