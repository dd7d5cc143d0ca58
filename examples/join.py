"""Take part in a real campaign with the two functions of quickstart.py: `python examples/join.py INVITATION.json [SEED]`.

docs/organisations.md sets up such a campaign on one machine. SEED makes up this person's measurements: bring your own instead.
"""

import sys

from quickstart import evaluate, person, train

import crowdfl


def main(invitation, seed="0"):
    """`yes=True`: we have read what the task is (`crowdfl participant look`). Without it, we are asked."""
    joining = crowdfl.join(invitation, yes=True)
    print(joining.run(train, evaluate, person(int(seed))))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("name an invitation file: python examples/join.py INVITATION.json [SEED]")
    main(*sys.argv[1:])
