"""Tools for the held-out goals, as an MCP server over stdio: a library, a museum, trains, plants, recipes and meters.

    python server.py [--tools book_info,eval_math] [--effects FILE]

Every value is invented. A look-up that finds nothing raises; where something else may be used instead, the error names it. `FILE` gets
what was written so far, as JSON: `{"reminders": [...], "notices": [...]}`.
"""

import argparse
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

_BOOKS = {  # title: author, shelf, pages, free copies
    "Salt and Ledger": ("Imre Quast", "K-31", 412, 2),
    "The Tin Orchard": ("Wanda Preuss", "D-07", 655, 0),
    "Moss Atlas": ("Hollis Vane", "P-19", 287, 4),
    "Nine Ferries": ("Imre Quast", "K-44", 198, 1),
}
_MEMBERS = {  # name: number, branch, address
    "Odile Brackwater": ("M-2044", "Harbour", "odile@brackwater.example"),
    "Lev Ansgar": ("M-3190", "Old Mill", "lev.ansgar@post.example"),
    "Thea Morrow": ("M-1175", "Harbour", "morrow@thea.example"),
}
_LOANS = {
    "M-2044": [("L-90311", "Moss Atlas", "2033-06-02", 1.35), ("L-90377", "Nine Ferries", "2033-05-18", 4.8), ("L-90402", "Salt and Ledger", "2033-07-11", 0.9)],
    "M-3190": [("L-91150", "The Tin Orchard", "2033-06-29", 2.25)],
    "M-1175": [],
}  # fmt: skip
_TRAINS = {  # number: from, to, platform, minutes late
    "RX 417": ("Dunmere", "Calloway", "5b", 13),
    "RX 88": ("Calloway", "Port Ilse", "11", 4),
    "RX 230": ("Dunmere", "Port Ilse", "2a", 37),
}
_FARES = {("dunmere", "calloway"): 46.2, ("calloway", "port ilse"): 17.9, ("dunmere", "port ilse"): 58.5}
_PLANTS = {  # name: height cm, water ml a week, lowest C, light
    "Glass fern": (43.5, 380, 7, "shade"),
    "Copper sedge": (61.0, 145, -12, "full sun"),
    "Bog lantern": (88.9, 1250, 2, "half shade"),
}
_RECIPES = {  # name: minutes, flour g, butter g, eggs
    "Plum loaf": (85, 340, 120, 3),
    "Rye wheel": (140, 515, 0, 0),
    "Hazelnut plait": (110, 460, 75, 2),
}
_METERS = {"Cellar": 318.4, "Attic": 77.9, "Studio": 204.6, "Foundry": 911.2}
_EXHIBITS = {"Amber Barge": ("room 14", 1622, "Sunniva Holt"), "Clay Quartet": ("room 3", 1788, "Jonas Feld")}
_PEOPLE = {  # name: room, telephone, mentor
    "Jonas Feld": ("2.118", "555-7310", "Sunniva Holt"),
    "Sunniva Holt": ("4.027", "555-2846", "Piet Arkwell"),
    "Piet Arkwell": ("1.903", "555-9165", None),
}
_DOCUMENTS = {
    "closing.txt": "Closing round: first the garden door, then the loading bay. The tower door is locked last.\nThe alarm is set at 22:35.\n",
    "workshop.txt": "Workshop: the kiln is switched on at 05:50 and off at 13:15. Glazes are kept in cupboard 9.\n",
}
_PER_EURO = {"EUR": 1.0, "DKK": 7.61, "PLN": 4.135, "SEK": 11.92}
_SIZES = {
    "cm": ("length", 1.0),
    "in": ("length", 2.54),
    "g": ("weight", 1.0),
    "oz": ("weight", 28.349523),
    "ml": ("volume", 1.0),
    "cups": ("volume", 236.588),
}

_written: dict[str, list[dict[str, str]]] = {"reminders": [], "notices": []}


def _get(table: dict[str, Any], key: str, what: str) -> tuple[str, Any]:
    for known, value in table.items():
        if known.casefold() == str(key).strip().casefold():
            return known, value
    raise LookupError(f"No {what} {key!r}.")


def book_info(title: str) -> dict[str, Any]:
    """A book of the library: author, shelf, number of pages, copies that are free.

    Args:
        title: the book's title
    """
    known, (author, shelf, pages, free) = _get(_BOOKS, title, "book with the title")
    return {"title": known, "author": author, "shelf": shelf, "pages": pages, "copies_free": free}


def find_member(full_name: str) -> dict[str, Any]:
    """A library member: member number, branch and mail address.

    Args:
        full_name: first and last name
    """
    known, (number, branch, address) = _get(_MEMBERS, full_name, "member called")
    return {"member_no": number, "full_name": known, "branch": branch, "address": address}


def loans_of(member_no: str) -> list[dict[str, Any]]:
    """The books that a member has borrowed, with due date and fine in euros.

    Args:
        member_no: the member's number, e.g. M-1000
    """
    _, loans = _get(_LOANS, member_no, "member with the number")
    return [{"loan_no": no, "book": book, "due": due, "fine_eur": fine} for no, book, due, fine in loans]


def train_status(train: str) -> dict[str, Any]:
    """Where a train leaves and how late it is: stations, platform, delay in minutes.

    Args:
        train: the train's number, e.g. RX 100
    """
    known, (start, end, platform, late) = _get(_TRAINS, train, "train")
    return {"train": known, "from": start, "to": end, "platform": platform, "delay_min": late}


def fare(from_station: str, to_station: str) -> dict[str, Any]:
    """Price in euros of one ticket between two stations.

    Args:
        from_station: where the trip begins
        to_station: where it ends
    """
    price = _FARES.get((str(from_station).strip().casefold(), str(to_station).strip().casefold()))
    if price is None:
        raise LookupError(f"No direct trip from {from_station!r} to {to_station!r}.")
    return {"from": from_station, "to": to_station, "fare_eur": price}


def plant_care(plant: str) -> dict[str, Any]:
    """What a plant needs: height in cm, water in ml per week, lowest temperature in Celsius, light.

    Args:
        plant: name of the plant
    """
    known, (height, water, lowest, light) = _get(_PLANTS, plant, "plant named")
    return {"plant": known, "height_cm": height, "water_ml_per_week": water, "lowest_c": lowest, "light": light}


def recipe(dish: str) -> dict[str, Any]:
    """A recipe for one piece: minutes it takes, grams of flour and butter, number of eggs.

    Args:
        dish: what is baked
    """
    if str(dish).strip().casefold() == "hazel bread":
        raise LookupError("'Hazel bread' is out of the book since last year; see 'Hazelnut plait' instead.")
    known, (minutes, flour, butter, eggs) = _get(_RECIPES, dish, "recipe for")
    return {"dish": known, "minutes": minutes, "flour_g": flour, "butter_g": butter, "eggs": eggs}


def read_meter(room: str) -> dict[str, Any]:
    """Electricity that a room has used this month, in kWh.

    Args:
        room: name of the room
    """
    if str(room).strip().casefold() == "pottery":
        raise LookupError("The room 'Pottery' has no meter of its own, it is counted with 'Foundry'.")
    known, used = _get(_METERS, room, "meter in the room")
    return {"room": known, "used_kwh": used}


def exhibit(name: str) -> dict[str, Any]:
    """A piece of the museum: where it stands, the year it was made, its curator.

    Args:
        name: what the piece is called
    """
    known, (room, year, curator) = _get(_EXHIBITS, name, "exhibit called")
    return {"name": known, "where": room, "year": year, "curator": curator}


def find_person(name: str) -> dict[str, Any]:
    """Somebody who works here: room, telephone and mentor.

    Args:
        name: the person's full name
    """
    known, (room, phone, mentor) = _get(_PEOPLE, name, "person named")
    return {"name": known, "room": room, "telephone": phone, "mentor": mentor}


def documents() -> list[str]:
    """The names of all documents."""
    return list(_DOCUMENTS)


def open_document(file_name: str) -> str:
    """What a document says.

    Args:
        file_name: its name
    """
    return _get(_DOCUMENTS, file_name, "document")[1]


def coin_rate(base: str, quote: str) -> float:
    """Exchange rate: the units of the quote currency that one unit of the base currency buys.

    Args:
        base: ISO code, e.g. EUR
        quote: ISO code, e.g. EUR
    """
    (_, one), (_, other) = _get(_PER_EURO, base, "currency"), _get(_PER_EURO, quote, "currency")
    return round(other / one, 6)


def convert_measure(amount: float, unit: str, into: str) -> float:
    """Turn an amount into another unit. Units: cm, in, g, oz, ml and cups.

    Args:
        amount: how much
        unit: the unit of the amount
        into: the unit wanted
    """
    (_, (kind, size)), (_, (other, wanted)) = _get(_SIZES, unit, "unit"), _get(_SIZES, into, "unit")
    if kind != other:
        raise ValueError(f"{unit!r} cannot be turned into {into!r}.")
    return round(float(amount) * size / wanted, 4)


def eval_math(formula: str) -> float:
    """A pocket calculator: evaluates a formula of numbers, + - * / and parentheses.

    Args:
        formula: numbers and operators
    """
    if not formula or set(formula) - set("0123456789.+-*/() "):
        raise ValueError(f"{formula!r} is not a formula: only numbers, + - * / and parentheses.")
    try:
        return round(float(eval(formula, {"__builtins__": {}})), 6)
    except (SyntaxError, ArithmeticError, TypeError) as error:
        raise ValueError(f"{formula!r} cannot be evaluated: {error}.") from None


def add_reminder(heading: str, details: str) -> dict[str, Any]:
    """Put a reminder on the board.

    Args:
        heading: a word or two
        details: what it is about
    """
    _written["reminders"].append({"heading": heading, "details": details})
    return {"added": True}


def post_notice(recipient: str, text: str) -> dict[str, Any]:
    """Mail a notice to somebody.

    Args:
        recipient: mail address
        text: the notice
    """
    if "@" not in recipient:
        raise ValueError(f"{recipient!r} is not a mail address.")
    _written["notices"].append({"recipient": recipient, "text": text})
    return {"posted": True}


WRITES = (add_reminder, post_notice)
TOOLS = {
    f.__name__: f
    for f in (
        book_info, find_member, loans_of, train_status, fare, plant_care, recipe, read_meter, exhibit, find_person, documents, open_document,
        coin_rate, convert_measure, eval_math, *WRITES,
    )
}  # fmt: skip


def main() -> None:
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--effects", type=Path)
    args = parser.parse_args()

    def record() -> None:
        if args.effects:
            args.effects.write_text(json.dumps(_written), encoding="utf-8")

    def served(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            try:
                return function(*given, **named)
            except (LookupError, ValueError) as error:
                raise ToolError(str(error).strip('"')) from None
            finally:
                record()

        return call

    server = MCPServer("house", version="1.0.0")
    for name in args.tools.split(","):
        server.add_tool(served(TOOLS[name]))
    record()
    server.run("stdio")


if __name__ == "__main__":
    main()
