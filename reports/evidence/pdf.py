"""The two pages as PDF: printed by a browser where there is one, by WeasyPrint elsewhere.

Neither is needed for anything else. A browser prints the page as it shows it; WeasyPrint (the extra `pdf`) lays it
out by itself and fetches nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from fedassay.support.errors import PlanError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")
"""Programs that print by `--headless --print-to-pdf`, in the order that they are looked for."""

_SECONDS = 60
_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--no-pdf-header-footer",
)


def pdf_of(page: str) -> bytes:
    """A page as PDF.

    Args:
        page: Self-contained HTML without scripts.

    Raises:
        PlanError: Neither a browser nor WeasyPrint is installed, or none of those that are could print it.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    failed = ""
    if browser is not None:
        try:
            return _by_browser(page, browser)
        except (OSError, subprocess.SubprocessError) as error:
            failed = f"{Path(browser).name} could not print it ({type(error).__name__}), and "
    try:
        return _by_weasyprint(page)
    except ImportError as error:
        without = (
            "WeasyPrint is not installed" if failed else "no Chromium, Chrome, Edge or WeasyPrint is installed"
        )
        raise PlanError(
            f"no PDF: {failed}{without}; print evidence.html in any browser, or install fedassay[pdf]"
        ) from error


def _by_browser(page: str, browser: str) -> bytes:
    with TemporaryDirectory(prefix="fedassay-pdf-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        source, printed = folder / "page.html", folder / "page.pdf"
        source.write_text(page, encoding="utf-8")
        # As root there is no sandbox to be had; the page holds no script and may fetch nothing.
        root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        subprocess.run(
            [
                browser,
                *_FLAGS,
                *root,
                f"--user-data-dir={folder / 'profile'}",
                f"--print-to-pdf={printed}",
                source.as_uri(),
            ],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
        )
        return printed.read_bytes()


def _by_weasyprint(page: str) -> bytes:
    from weasyprint import HTML
    from weasyprint.urls import URLFetcher

    # The page is self-contained: no protocol is allowed, so that nothing is ever fetched.
    printed: bytes = HTML(string=page, url_fetcher=URLFetcher(allowed_protocols=["none"])).write_pdf()
    return printed
