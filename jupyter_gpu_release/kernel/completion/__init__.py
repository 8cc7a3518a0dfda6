"""Completion and help while a magic's line is typed: options, their values, runs."""
