"""What an error suggests in place of an unknown name."""

from oversmoothing.errors import ends, meant


def test_suggestions_of_other_numbers_only_among_many() -> None:
    assert meant("L=3", ["L=32", "L=16", "L=2"]) == "known: L=2, L=16, L=32"
    many = [f"net{i}" for i in range(100)]
    assert meant("net100", many).startswith("did you mean 'net")


def test_of_many_names_the_ends() -> None:
    names = [f"layers.{i}" for i in range(24)]
    assert ends(names) == "layers.0, layers.1, …, layers.23"
    assert ends(names[:4]) == ", ".join(names[:4])
