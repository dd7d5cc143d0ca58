"""What `crowdfl bench` measures: CrowdFL beside other libraries, in one run on one machine.

Nothing here holds a result. The other libraries ("peers") live in an environment of their own and run as a subprocess that
prints JSON, one after another and never beside our own measurements. See lab/docs/benchmarks.md for how each figure is taken.
"""
