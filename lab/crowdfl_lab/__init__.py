"""The laboratory: benchmarks, the paper's experiments, the audit and the demo.

Nothing outside imports it; the command line loads it by name.
"""
