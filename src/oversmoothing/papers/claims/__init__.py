"""What the papers claim in words, each claim with what was measured and a computed verdict."""

from oversmoothing.papers.claims.main import main as main
