"""The pages that SP serves beside its API: the phone at /join/, the console at /console/, and what pages share at /web/."""

from collections.abc import Callable, Mapping

from fastapi import FastAPI

from crowdfl.settings import SpSettings, origin_of
from crowdfl.web.console_app import add_console
from crowdfl.web.static import PACKAGE, Assets, add_static, load_assets, page_headers

# Where each folder of this package is served; the phone's modules import each other by these places, relative ones.
_PLACES = {"/join": "phone", "/web/common": "common", "/web/vendor": "vendor"}


class PhoneHeaders:
    """The headers of the phone's files. Workers are under the policy of their own script, so all files have them."""

    def __init__(self, settings: SpSettings) -> None:
        self._now = _headers(settings)

    def __call__(self) -> Mapping[str, str]:
        return self._now

    def prepare(self, settings: SpSettings) -> Callable[[], None]:
        """For a reload: KGC may have moved."""
        made = _headers(settings)

        def use() -> None:
            self._now = made

        return use


def phone_assets() -> dict[str, Assets]:
    """Every file of the phone's page, by the place it is served at."""
    return {place: load_assets(PACKAGE / folder) for place, folder in _PLACES.items()}


def phone_headers(connect: tuple[str, ...]) -> dict[str, str]:
    return page_headers(connect, sensors=True)


def add_pages(app: FastAPI, settings: SpSettings) -> None:
    """To an app of `open_sp`; the command line does this, since services know nothing of pages."""
    headers = PhoneHeaders(settings)
    app.state.reloads.add(headers.prepare)
    for place, assets in phone_assets().items():
        add_static(app, place, assets, headers)
    add_console(app, app.state.parts)


def _headers(settings: SpSettings) -> dict[str, str]:
    return phone_headers((origin_of(settings.kgc.url), *settings.phone_connect))
