"""The profile `hardened`: leaks of the printed protocol closed."""
