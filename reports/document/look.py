"""The contact sheet of a data set as a page of its own: what `fedassay look` writes."""

from __future__ import annotations

from fedassay.data.account import Account
from fedassay.data.sheet import Contact
from fedassay.reports.document.contact import shown
from fedassay.reports.document.html import render


def page(contact: Contact, account: Account) -> str:
    """The sheet as a page.

    Args:
        contact: The sheet.
        account: Of its data set.
    """
    sheet = shown(contact.sheet, contact.tiles, account)
    notice = (
        f"This page contains private images: {sheet.pictures} pictures. Pass it on as you would these."
        if sheet.pictures
        else ""
    )
    return render("look.html.j2", shown=sheet, notice=notice)
