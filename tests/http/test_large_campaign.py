"""Campaigns with models larger than one piece, over TLS, with processes of their own."""

import numpy as np
import pytest

from tests.http.large_model import play

AVERAGE = 0.5  # of what three people move every weight by


@pytest.mark.second
@pytest.mark.parametrize("settings", [{}, {"check": "bounds", "max_norm": 2000.0, "pay": "equal", "budget": "3.00"}])
def test_a_model_of_several_pieces_is_averaged(tmp_path, settings):
    """Its first weights, its uploads and SP's sum take several requests each."""
    found = play(tmp_path, 1_500_000, **settings)
    assert np.array_equal(found.model, np.full(1_500_000, AVERAGE))


@pytest.mark.slow
@pytest.mark.second
def test_a_hundred_million_parameters_take_two_models_of_each_server(tmp_path):
    """Beside what a server takes before there is a task."""
    parameters = 100_000_000
    found = play(tmp_path, parameters)
    assert (found.model.min(), found.model.max()) == (AVERAGE, AVERAGE)
    for role in ("kgc", "sp", "csp"):
        assert found.most[role] - found.idle[role] < 2 * 8 * parameters, role
