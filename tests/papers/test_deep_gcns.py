"""Networks that are trained for the claims on initial weights and norms."""

import pytest

from oversmoothing.lab.papers import deep_gcns


def test_a_network_of_a_batch_is_the_one_alone_and_a_fixed_centering_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deep_gcns, "EPOCHS", 30)
    words = {"depth": 4, "init": "glorot", "adjacency": "symmetric"}
    both = deep_gcns.trained(**words, norm="learned", seeds=[3, 7])
    [alone] = deep_gcns.trained(**words, norm="learned", seeds=[7])
    assert both[1] == alone | {k: pytest.approx(alone[k]) for k in ("gradient", "spread")}
    fixed = deep_gcns.trained(**words, norm="fixed", seeds=[3, 7])
    same, changed = ("gradient", "spread"), "test_accuracy"
    assert [[own[k] for k in same] for own in fixed] == [[own[k] for k in same] for own in both]
    assert [own[changed] for own in fixed] != [own[changed] for own in both]
