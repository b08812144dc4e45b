"""What schemathesis takes for wrong, and HTTP or JSON as people write it does not."""

import schemathesis

# The header by which it tries whether unknown ones are refused. Every proxy adds headers of its own, so they are not.
UNKNOWN_HEADER = "x-schemathesis-unknown-property"


@schemathesis.hook
def filter_case(context, case):
    return UNKNOWN_HEADER not in (case.headers or {})


# To JSON Schema 7.0 is an integer. Whole numbers are written without a fraction here, and nothing else is read as one.
def written_whole(value):
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [written_whole(item) for item in value]
    if isinstance(value, dict):
        return {name: written_whole(item) for name, item in value.items()}
    return value


@schemathesis.hook
def map_body(context, body):
    return written_whole(body)
