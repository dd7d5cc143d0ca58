"""The audit: every attack of the design's section 7, run on honest transcripts of both profiles beside a blind guess."""
