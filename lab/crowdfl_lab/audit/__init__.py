"""The audit: what servers and others can read of transcripts, and what parties that deviate gain, beside a blind guess."""
