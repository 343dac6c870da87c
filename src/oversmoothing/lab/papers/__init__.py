"""Figures and tables of papers: each module has ``main(argv)``, which draws or computes one.

``oversmoothing figure <name>`` calls it.
"""

import re

from oversmoothing.lab.launch.script import Parser, add_publish
from oversmoothing.lab.store.files import results

RESULTS = results()


def figure_parser(doc: str, pdf: bool = True, overrides: bool = False) -> Parser:
    """Returns a parser whose help is the docstring of a module.

    Its ``target`` is the folder that the results are written to.

    Args:
        doc: ``__doc__`` of the module, with its command.
        pdf: whether to add ``--pdf``.
        overrides: whether the command takes overrides after ``--``.
    """
    parser = Parser(doc, re.search(r"oversmoothing figure \w+", doc)[0], overrides)
    add_publish(parser)
    if pdf:
        parser.add_argument("--pdf", action="store_true", help="also save PDFs")
    return parser
