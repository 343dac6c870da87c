"""The claims of the papers, each with its measurement and a computed verdict."""

from oversmoothing.papers.claims.main import main as main
