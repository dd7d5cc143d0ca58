"""Attacks on the profile `shares`: rounds of the real parties, with servers that deviate and mechanisms switched off."""
