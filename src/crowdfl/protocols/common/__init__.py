"""What profiles share. They never import each other."""
