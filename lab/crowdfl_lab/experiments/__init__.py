"""Every table and figure of the paper's section 8, made again."""
