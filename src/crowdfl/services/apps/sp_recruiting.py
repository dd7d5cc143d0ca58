"""SP over HTTP, to whoever looks for a task: those that it lists, and a place in one of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from pydantic import Field

from crowdfl.documents.links import ListedLink, listed_link
from crowdfl.documents.signed import Definition
from crowdfl.documents.task_summary import recruiting_words
from crowdfl.errors import TooManyJoins
from crowdfl.roles.sp.platform import Sp
from crowdfl.services.http.address_limit import AddressLimit, address_in
from crowdfl.services.http.bodies import SMALL_LIMIT, Form, TaskId, json_body, known_task, takes_json
from crowdfl.settings import to_millionths

_PAGE = "/join/"  # where links lead


@dataclass(frozen=True)
class Listing:
    """What SP tells whoever joins about KGC: where people reach it, and its key. Nobody else tells them."""

    kgc: str
    kgc_key: bytes
    joins: AddressLimit  # how many places one address is given


class PlaceForm(Form):
    """The public half of a key that whoever joins has made."""

    key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def add_recruiting_routes(app: FastAPI, sp: Sp, listing: Listing, sp_key: bytes) -> None:
    """No token: whoever fits may join."""
    known = [Depends(known_task(sp.core.definition))]
    place = json_body(PlaceForm, SMALL_LIMIT)

    @app.get("/v1/tasks")
    def listed() -> dict[str, Any]:
        """The tasks that SP lets people into, those with the most places left first, and the keys that it names to them."""
        servers = {"kgc": listing.kgc, "kgc_key": listing.kgc_key.hex(), "sp_key": sp_key.hex()}
        return {"tasks": [_row(listing, sp_key, *one) for one in sp.recruiting.listed()], "servers": servers}

    @app.post("/v1/tasks/{task}/places", dependencies=known, openapi_extra=takes_json(PlaceForm))
    def give(task: TaskId, body: Annotated[PlaceForm, Depends(place)], request: Request) -> dict[str, str]:
        """An invitation of SP's for this key, in a task that it lists; asked again, to the same place."""
        if wait := listing.joins.wait(address_in(request)):
            raise TooManyJoins(
                f"{listing.joins.most} places were given to your address lately: come back in {wait // 60 + 1} minutes"
            )
        return {"invitation": sp.recruiting.give(task, bytes.fromhex(body.key))}


def _row(listing: Listing, sp_key: bytes, definition: Definition, status: Mapping[str, Any]) -> dict[str, Any]:
    """What a list shows of a task, as its requester says it; whoever looks closer checks the signed definition."""
    settings = definition.settings
    texts = {language: found.purpose for language, found in definition.texts.items() if found.purpose}
    return {
        "task": definition.task,
        "purpose": definition.purpose,
        "purposes": texts,
        "language": definition.language,
        "who": {"name": definition.who.name, "institution": definition.who.institution},
        "profile": settings.profile,
        "rounds": settings.rounds,
        "budget": None if settings.budget is None else to_millionths(settings.budget),
        "currency": settings.currency,
        "epsilon": settings.epsilon,
        "enrolled": status["enrolled"],
        "places_left": status["places_left"],
        "insecure": settings.is_insecure,
        "recruiting": recruiting_words(definition),
        "link": listed_link(_PAGE, ListedLink(definition.task, listing.kgc, "", listing.kgc_key, sp_key)),
    }
