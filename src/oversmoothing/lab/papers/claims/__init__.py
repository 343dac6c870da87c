"""The claims of the papers, each with its measurement and a computed verdict."""

from oversmoothing.lab.papers.claims.main import main as main
