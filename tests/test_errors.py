"""What an error suggests in place of an unknown name."""

from oversmoothing.errors import described, ends, meant


def test_suggestions_of_other_numbers_only_among_many() -> None:
    assert meant("L=3", ["L=32", "L=16", "L=2"]) == "known: L=2, L=16, L=32"
    some, many = ([f"net{i}" for i in range(n)] for n in (30, 100))
    assert meant("net100", many).startswith("did you mean 'net")
    found = meant("net30", some)
    assert found.startswith("did you mean 'net") and "known: net0, " in found


def test_of_many_names_the_ends() -> None:
    names = [f"layers.{i}" for i in range(24)]
    assert ends(names) == "layers.0, layers.1, …, layers.23"
    assert ends(names[:4]) == ", ".join(names[:4])


def test_errors_of_other_libraries_without_text_and_with_a_long_one() -> None:
    assert described(FileNotFoundError()) == "FileNotFoundError"
    found = described(ValueError("first " + "word " * 99 + "last"))
    assert found.startswith("ValueError: first ") and " … " in found and found.endswith(" last")
