"""The goals that are reached in a plain loop and as a plan: their tools, the records behind these, and their steps.

Standard library only: every peer's environment imports it.
"""

import asyncio
import json
import os
import re

LATENCY = float(os.environ.get("GOAL_TOOL_SECONDS", "0.3"))
"""Seconds that each tool takes."""

TOOLS = {  # name: (description, parameters)
    "find_customer": (
        "Find a customer by full name. Returns customer_id, email, phone, city, tier and since.",
        ("name",),
    ),
    "latest_order": (
        "The latest order of a customer. Returns order_id, status, total_eur, lines and shipment_id.",
        ("customer_id",),
    ),
    "track_shipment": (
        "Where a shipment is. Returns carrier, status, eta, depot_id, depot_city and history.",
        ("shipment_id",),
    ),
    "get_depot": (
        "A depot of ours. Returns name, city, address, opening hours and manager_id.",
        ("depot_id",),
    ),
    "get_employee": (
        "An employee of ours. Returns name, role, phone, email and office.",
        ("employee_id",),
    ),
    "get_weather": (
        "The weather in a city now. Returns temperature_c, wind_kmh, humidity_pct, sky and station.",
        ("city",),
    ),
    "road_distance": (
        "The distance by road between two cities. Returns distance_km, duration_min and via.",
        ("from_city", "to_city"),
    ),
    "get_product": (
        "A product of the shop. Returns title, price_eur, weight_kg and stock by depot.",
        ("product_id",),
    ),
}

WEATHER = {
    "Oslo": 3,
    "Lisbon": 17,
    "Vienna": 9,
    "Dublin": 11,
    "Athens": 21,
    "Warsaw": 6,
    "Madrid": 15,
    "Helsinki": 1,
}
PEOPLE = {
    "Ann Lee": ("C-40218", "O-77310", "SH-5590-PT", "D-OPO-2"),
    "Bob Ray": ("C-51973", "O-80452", "SH-6127-ES", "D-MAD-1"),
}
CITIES = {"D-OPO-2": "Porto", "D-MAD-1": "Madrid"}


def _customer(name):
    number = PEOPLE[name][0]
    slug = name.lower().replace(" ", ".")
    address = {"street": "18 Harbour Row", "postcode": "4050-253", "city": "Porto", "country": "PT"}
    return {
        "customer_id": number,
        "name": name,
        "email": f"{slug}@example.org",
        "phone": "+351 220 145 318",
        "address": address,
        "tier": "silver",
        "since": "2019-03-14",
        "marketing": {"newsletter": True, "sms": False},
        "notes": "Prefers deliveries in the afternoon; the bell does not work, please knock.",
    }


def _order(customer_id):
    number, shipment = next((row[1], row[2]) for row in PEOPLE.values() if row[0] == customer_id)
    lines = [
        {"product_id": "P-1180", "title": "Desk lamp, brass", "quantity": 1, "price_eur": 64.9},
        {"product_id": "P-2207", "title": "Oak shelf 80 cm", "quantity": 2, "price_eur": 41.5},
    ]
    return {
        "order_id": number,
        "customer_id": customer_id,
        "placed": "2025-11-21T09:14:03Z",
        "status": "shipped",
        "currency": "EUR",
        "total_eur": 147.9,
        "lines": lines,
        "payment": {"method": "card", "last4": "4471", "paid": True},
        "shipment_id": shipment,
    }


def _shipment(shipment_id):
    depot = next(row[3] for row in PEOPLE.values() if row[2] == shipment_id)
    history = [
        {"at": "2025-11-21T16:40:00Z", "event": "picked up"},
        {"at": "2025-11-22T03:12:00Z", "event": "sorted in the central hub"},
        {"at": "2025-11-22T11:55:00Z", "event": "arrived at the depot"},
    ]
    return {
        "shipment_id": shipment_id,
        "carrier": "Northline Freight",
        "service": "standard",
        "status": "at depot",
        "eta": "2025-11-25",
        "depot_id": depot,
        "depot_city": CITIES[depot],
        "weight_kg": 11.4,
        "pieces": 2,
        "history": history,
    }


def _depot(depot_id):
    return {
        "depot_id": depot_id,
        "name": f"{CITIES[depot_id]} North",
        "city": CITIES[depot_id],
        "address": {"street": "Rua do Freixo 1071", "postcode": "4300-219", "country": "PT"},
        "hours": {"mon-fri": "06:00-21:00", "sat": "08:00-14:00", "sun": None},
        "docks": 12,
        "phone": "+351 225 300 410",
        "manager_id": "E-0388",
        "services": ["pick-up", "returns", "pallets", "cold chain"],
    }


def _employee(employee_id):
    return {
        "employee_id": employee_id,
        "name": "Marta Silva",
        "role": "depot manager",
        "office": "Porto North",
        "phone": "+351 225 300 417",
        "email": "marta.silva@example.org",
        "languages": ["pt", "en", "es"],
        "since": "2014-09-01",
        "deputy_id": "E-0412",
        "absences": [{"from": "2025-12-22", "to": "2026-01-02", "kind": "holiday"}],
    }


def _weather(city):
    return {
        "city": city,
        "observed": "2025-11-24T10:50:00Z",
        "station": f"{city[:3].upper()}-014",
        "temperature_c": WEATHER[city],
        "feels_like_c": WEATHER[city] - 2,
        "wind_kmh": 14,
        "wind_from": "NW",
        "humidity_pct": 71,
        "pressure_hpa": 1016,
        "sky": "partly cloudy",
        "visibility_km": 18,
        "source": "synoptic network, hourly",
    }


def _distance(from_city, to_city):
    via = [{"city": "Viseu", "km": 128}, {"city": "Salamanca", "km": 341}, {"city": "Avila", "km": 449}]
    return {
        "from_city": from_city,
        "to_city": to_city,
        "distance_km": 563,
        "duration_min": 345,
        "route": "A25, A-62, A-50, A-6",
        "via": via,
        "tolls_eur": 31.35,
        "computed": "2025-11-24T10:51:12Z",
    }


def _product(product_id):
    return {"product_id": product_id, "title": "Desk lamp, brass", "price_eur": 64.9, "weight_kg": 2.2, "stock": {}}


RECORDS = {
    "find_customer": _customer,
    "latest_order": _order,
    "track_shipment": _shipment,
    "get_depot": _depot,
    "get_employee": _employee,
    "get_weather": _weather,
    "road_distance": _distance,
    "get_product": _product,
}


async def result(tool, arguments):
    """What a tool gives, as the JSON text that every peer hands to the model, after the latency."""
    await asyncio.sleep(LATENCY)
    return json.dumps(RECORDS[tool](**arguments), separators=(",", ":"))


def functions():
    """The tools as plain async functions with typed parameters and docstrings, as any framework takes them."""
    return [_function(name, *spec) for name, spec in TOOLS.items()]


def _function(name, description, parameters):
    space = {"result": result}
    signature = ", ".join(f"{parameter}: str" for parameter in parameters)
    given = ", ".join(f"{parameter!r}: {parameter}" for parameter in parameters)
    exec(f"async def {name}({signature}) -> str:\n    return await result({name!r}, {{{given}}})", space)
    space[name].__doc__ = description
    return space[name]


class Goal:
    """A goal, the steps that lead to it, and the answer. `steps`: (id, description, tool, arguments); arguments hold
    references to earlier steps' results. `shown` are the steps whose results the answer is made of.
    """

    def __init__(self, text, thought, steps, answer, shown, depth):
        self.text, self.thought, self.steps, self.answer = text, thought, steps, answer
        self.shown, self.depth = shown, depth

    def plan(self):
        """The plan that a good model writes for it."""
        steps = [
            {
                "id": ident,
                "description": description,
                **({} if "${" in json.dumps(arguments) else {"depends_on": []}),
                "call": {"tool": tool, "arguments": arguments},
            }
            for ident, description, tool, arguments in self.steps
        ]
        uses = list(dict.fromkeys(step[2] for step in self.steps))
        return {"thought": self.thought, "uses": uses, "steps": steps}

    def next_calls(self, results):
        """The calls that can be made now, by id: all that do not wait for a result that is not there."""
        return {
            ident: (tool, filled)
            for ident, _, tool, arguments in self.steps
            if ident not in results and (filled := _fill(arguments, results)) is not None
        }


def _fill(arguments, results):
    filled = {}
    for name, value in arguments.items():
        if match := re.fullmatch(r"\$\{(\w+)\.result\.(\w+)\}", value):
            if match[1] not in results:
                return None
            value = results[match[1]][match[2]]
        filled[name] = value
    return filled


def _chain(who, first):
    """Find the person, the latest order, and where it is."""
    a, b, c = (f"s{first + n}" for n in range(3))
    return [
        (a, f"Find {who}", "find_customer", {"name": who}),
        (b, f"Latest order of {who}", "latest_order", {"customer_id": f"${{{a}.result.customer_id}}"}),
        (c, f"Where {who}'s order is", "track_shipment", {"shipment_id": f"${{{b}.result.shipment_id}}"}),
    ]


GOALS = {
    "eight": Goal(
        f"What is the temperature now in each of {', '.join(WEATHER)}?",
        "Eight independent look-ups, one a city.",
        [(f"s{n}", f"Weather in {city}", "get_weather", {"city": city}) for n, city in enumerate(WEATHER, 1)],
        "Now: " + ", ".join(f"{city} {degrees} C" for city, degrees in WEATHER.items()) + ".",
        [f"s{n}" for n in range(1, 9)],
        1,
    ),
    "chain": Goal(
        "Who manages the depot where Ann Lee's latest order is, and how can I call them?",
        "Customer, latest order, its shipment, the depot, its manager.",
        [
            *_chain("Ann Lee", 1),
            ("s4", "The depot it is in", "get_depot", {"depot_id": "${s3.result.depot_id}"}),
            ("s5", "The depot's manager", "get_employee", {"employee_id": "${s4.result.manager_id}"}),
        ],
        "Marta Silva manages it; her number is +351 225 300 417.",
        ["s5"],
        5,
    ),
    "two-chains": Goal(
        "How far by road is the depot that has Ann Lee's latest order from the one that has Bob Ray's?",
        "Both customers' latest shipments, then the distance between the two depots' cities.",
        [
            *_chain("Ann Lee", 1),
            *_chain("Bob Ray", 4),
            (
                "s7",
                "Distance between the depots' cities",
                "road_distance",
                {"from_city": "${s3.result.depot_city}", "to_city": "${s6.result.depot_city}"},
            ),
        ],
        "563 km by road: Ann Lee's order is in Porto, Bob Ray's in Madrid.",
        ["s7"],
        4,
    ),
}
