"""The google-genai SDK by hand: `generate_content_stream`, and the parts of a reply back as they came."""

from common import DESCRIPTION, PROMPT, RESULT, TOOL
from google import genai
from google.genai import types

LOOKUP = types.FunctionDeclaration(
    name="lookup", description=DESCRIPTION, parameters_json_schema=TOOL["function"]["parameters"]
)
CONFIG = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[LOOKUP])])


def lookup(key: str) -> str:
    return RESULT


def build(base_url, model, stream=True):
    options = types.HttpOptions(base_url=base_url.removesuffix("/v1"))
    client = genai.Client(api_key="none", http_options=options)
    model = f"gemini-2.5-flash-{model}"

    async def step(contents):
        parts = []
        chunks = await client.aio.models.generate_content_stream(model=model, contents=contents, config=CONFIG)
        async for chunk in chunks:
            parts += chunk.candidates[0].content.parts
        return parts

    async def run():
        contents = [types.Content(role="user", parts=[types.Part(text=PROMPT)])]
        while True:
            parts = [part for part in await step(contents) if part.text or part.function_call]
            contents.append(types.Content(role="model", parts=parts))
            calls = [part.function_call for part in parts if part.function_call]
            if not calls:
                return "".join(part.text for part in parts)
            results = [
                types.Part.from_function_response(name=call.name, response={"result": lookup(**call.args)})
                for call in calls
            ]
            contents.append(types.Content(role="user", parts=results))

    return run
