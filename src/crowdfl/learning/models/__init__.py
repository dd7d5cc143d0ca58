"""Models: their arrays, files, and the learners that train them."""
