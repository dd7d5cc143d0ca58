"""The profile `hardened`: the paper's cryptosystem, with the leaks of the printed protocol closed."""
