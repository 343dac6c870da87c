"""Figures and tables of papers: each module has ``main(argv)``, which draws or computes one.

``oversmoothing figure <name>`` calls it.
"""

import re
from argparse import ArgumentParser

from oversmoothing.lab.launch.script import add_publish
from oversmoothing.lab.store.files import results

RESULTS = results()


def figure_parser(doc: str, pdf: bool = True) -> ArgumentParser:
    """Returns a parser whose help is the first line of a module's docstring.

    Its ``target`` is the folder that the results are written to.

    Args:
        doc: ``__doc__`` of the module, with its command.
        pdf: whether to add ``--pdf``.
    """
    command = re.search(r"oversmoothing figure \w+", doc)[0]
    parser = ArgumentParser(prog=command, description=doc.split("\n")[0])
    add_publish(parser)
    if pdf:
        parser.add_argument("--pdf", action="store_true", help="also save PDFs")
    return parser
