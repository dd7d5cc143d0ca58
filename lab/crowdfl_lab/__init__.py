"""The laboratory: benchmarks, the paper's experiments, the audit and the demo.

Nothing outside imports it; the command line loads it by name.
"""

# What `crowdfl --help` says of its commands, without loading them.
COMMANDS = {
    "audit": "Attack all profiles: what each attacker recovers, honest or deviating, beside a blind guess.",
    "bench": "Measure CrowdFL on this machine.",
    "demo": "Run a campaign over TLS on this machine, every role a process, and report what everyone saw.",
    "demo-phone": "Start a campaign that a phone in the same network can join by a link; Ctrl-C ends and removes everything.",
    "reproduce": "Make tables and figures of the paper's section 8 again, beside its numbers; and what noise costs and hides.",
    "wisdm": "WISDM: fetch its raw text, build the paper's data set.",
}
