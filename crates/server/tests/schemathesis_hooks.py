"""What schemathesis takes for wrong, and HTTP or JSON as people write it does not."""

import schemathesis

# The header by which it tries whether unknown ones are refused. Every proxy adds headers of its own, so they are not.
UNKNOWN_HEADER = "x-schemathesis-unknown-property"


# Fields whose value is any JSON: there, null is a value.
ANY_JSON = {"payload", "result", "value", "progress"}


# Elsewhere null is taken for a field that is not there, as clients write it, and so is an empty parameter of a query.
def has_null(value):
    if isinstance(value, list):
        return any(has_null(item) for item in value)
    if isinstance(value, dict):
        return any(
            name not in ANY_JSON and (item is None or has_null(item)) for name, item in value.items()
        )
    return False


@schemathesis.hook
def filter_case(context, case):
    query = case.query if isinstance(case.query, dict) else {}
    if any(value is None or value == "" for value in query.values()):
        return False
    return UNKNOWN_HEADER not in (case.headers or {}) and not has_null(case.body)


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
