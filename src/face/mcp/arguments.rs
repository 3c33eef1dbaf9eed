//! A call's arguments against a tool's input schema: the part of JSON Schema that the tools use, with words for a model in place
//! of a validator's, and with the slips forgiven that models make.
//!
//! Knows `type` (one of integer, number, string, boolean, array, object), `enum`, `minimum`, `maximum`, `minLength`, `maxLength`,
//! `items`, `maxItems`, and of an object `properties`, `required` and `additionalProperties: false`. Other keywords say nothing
//! here. A string that spells an integer or a boolean is one where one is due, and null is the same as nothing.

use serde_json::{Map, Value};

/// How much of what was given is shown again, in characters.
const SHOWN: usize = 60;

/// Integers beyond it are not exact in floating point.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The arguments as the schema means them.
///
/// # Errors
/// What is wrong with the first that is, and what is allowed.
pub fn check(schema: &Value, mut given: Map<String, Value>) -> Result<Map<String, Value>, String> {
    given.retain(|_, value| !value.is_null());
    let none = Map::new();
    let known = schema["properties"].as_object().unwrap_or(&none);
    if schema["additionalProperties"] == false
        && let Some(name) = given.keys().find(|name| !known.contains_key(*name))
    {
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(format!("There is no argument {:?}. Possible: {names}.", cut(name)));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !given.contains_key(name) {
            return Err(format!("The argument {name:?} is missing: {}.", allowed(&known[name])));
        }
    }
    for (name, schema) in known {
        if let Some(value) = given.get_mut(name)
            && !fits(schema, value)
        {
            return Err(format!("The argument {name:?} cannot be {}: {}.", cut(&value.to_string()), allowed(schema)));
        }
    }
    Ok(given)
}

/// The beginning of a text that somebody else has written.
pub fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Whether a value satisfies a schema, after it has been made what it spells.
fn fits(schema: &Value, value: &mut Value) -> bool {
    let is_right = match schema["type"].as_str() {
        Some("integer") => {
            if let Some(integer) = spelt_integer(value) {
                *value = integer.into();
            }
            value.is_i64() || value.is_u64()
        }
        Some("number") => value.is_number(),
        Some("boolean") => {
            if let Some(boolean) = value.as_str().and_then(|text| text.parse::<bool>().ok()) {
                *value = boolean.into();
            }
            value.is_boolean()
        }
        Some("string") => value.is_string(),
        Some("array") => {
            value.as_array_mut().is_some_and(|items| items.iter_mut().all(|item| fits(&schema["items"], item)))
        }
        Some("object") => value.is_object(),
        _ => true,
    };
    let size = match value {
        Value::Number(number) => number.as_f64().map(|size| ("minimum", size, "maximum")),
        Value::String(text) => Some(("minLength", text.chars().count() as f64, "maxLength")),
        Value::Array(items) => Some(("minItems", items.len() as f64, "maxItems")),
        _ => None,
    };
    let is_within = size.is_none_or(|(least, size, most)| {
        schema[least].as_f64().is_none_or(|least| size >= least)
            && schema[most].as_f64().is_none_or(|most| size <= most)
    });
    is_right && is_within && schema["enum"].as_array().is_none_or(|values| values.contains(value))
}

/// The integer that a string spells, or a number that happens to have a point.
fn spelt_integer(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        // Without a fraction and exact, so nothing is lost.
        Value::Number(number) => number
            .as_f64()
            .filter(|size| number.is_f64() && size.fract() == 0.0 && size.abs() <= EXACT)
            .map(|size| size as i64),
        _ => None,
    }
}

/// What a schema allows, in words.
fn allowed(schema: &Value) -> String {
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> = values.iter().map(Value::to_string).collect();
        return format!("it must be one of {}", values.join(", "));
    }
    let (kind, unit, bounds) = match schema["type"].as_str() {
        Some("integer") => ("an integer", "", ["minimum", "maximum"]),
        Some("number") => ("a number", "", ["minimum", "maximum"]),
        Some("string") => ("a string", " characters", ["minLength", "maxLength"]),
        Some("boolean") => return "it must be true or false".to_owned(),
        Some("array") => {
            let items = match schema["items"]["type"].as_str() {
                Some("integer") => "a list of integers",
                Some("string") => "a list of strings",
                _ => "a list",
            };
            let [least, most] = ["minimum", "maximum"].map(|bound| &schema["items"][bound]);
            let each =
                if least.is_null() || most.is_null() { String::new() } else { format!(" from {least} to {most}") };
            let most = schema["maxItems"].as_u64().map_or(String::new(), |most| format!(", at most {most} of them"));
            return format!("it must be {items}{each}{most}");
        }
        Some("object") => return "it must be an object".to_owned(),
        _ => return "it must be something else".to_owned(),
    };
    let within = match bounds.map(|bound| &schema[bound]) {
        [Value::Null, Value::Null] => String::new(),
        [least, Value::Null] => format!(" of at least {least}{unit}"),
        [Value::Null, most] => format!(" of at most {most}{unit}"),
        [least, most] => format!(" from {least} to {most}{unit}"),
    };
    format!("it must be {kind}{within}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "id": {"type": "integer", "minimum": 1},
                "lines": {"type": "integer", "minimum": 1, "maximum": 200},
                "name": {"type": "string", "minLength": 1, "maxLength": 5},
                "sure": {"type": "boolean"},
                "kind": {"type": "string", "enum": ["terminal", "agent"]},
                "bytes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}, "maxItems": 3},
                "share": {"type": "number", "maximum": 1},
                "more": {"type": "object"},
            },
            "required": ["id"],
            "additionalProperties": false,
        })
    }

    #[test]
    fn what_is_meant_is_taken() {
        let rows = [
            (json!({"id": 1}), json!({"id": 1})),
            (json!({"id": "5"}), json!({"id": 5})),
            (json!({"id": " 7 "}), json!({"id": 7})),
            (json!({"id": 5.0}), json!({"id": 5})),
            (json!({"id": 9_007_199_254_740_993_u64}), json!({"id": 9_007_199_254_740_993_u64})),
            (json!({"id": u64::MAX}), json!({"id": u64::MAX})),
            (json!({"id": 1, "lines": null}), json!({"id": 1})),
            (json!({"id": 1, "sure": "true"}), json!({"id": 1, "sure": true})),
            (json!({"id": 1, "bytes": ["3", 255, 0.0]}), json!({"id": 1, "bytes": [3, 255, 0]})),
            (json!({"id": 1, "name": "ßßßßß", "kind": "agent"}), json!({"id": 1, "name": "ßßßßß", "kind": "agent"})),
            (
                json!({"id": 1, "share": 0.5, "more": {"a": [null]}}),
                json!({"id": 1, "share": 0.5, "more": {"a": [null]}}),
            ),
        ];
        for (given, expected) in rows {
            let Value::Object(arguments) = given.clone() else { panic!("{given}") };
            assert_eq!(check(&schema(), arguments).map(Value::Object), Ok(expected), "{given}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_what_is_right() {
        let long = "x".repeat(1000);
        let rows = [
            (json!({}), "The argument \"id\" is missing: it must be an integer of at least 1."),
            (json!({"id": null}), "The argument \"id\" is missing"),
            (json!({"id": 1.5}), "The argument \"id\" cannot be 1.5: it must be an integer of at least 1."),
            (json!({"id": 0}), "cannot be 0"),
            (json!({"id": "-0"}), "cannot be 0"),
            (json!({"id": "five"}), "cannot be \"five\""),
            (json!({"id": 1e300}), "cannot be 1e+300"),
            (json!({"id": true}), "cannot be true"),
            (json!({"id": 1, "lines": 201}), "cannot be 201: it must be an integer from 1 to 200."),
            (json!({"id": 1, "name": ""}), "cannot be \"\": it must be a string from 1 to 5 characters."),
            (json!({"id": 1, "name": 5}), "cannot be 5"),
            (json!({"id": 1, "name": long}), "xxx…: it must"),
            (json!({"id": 1, "sure": "yes"}), "it must be true or false."),
            (json!({"id": 1, "sure": 1}), "it must be true or false."),
            (json!({"id": 1, "kind": "command"}), "it must be one of \"terminal\", \"agent\"."),
            (json!({"id": 1, "bytes": [256]}), "it must be a list of integers from 0 to 255, at most 3 of them."),
            (json!({"id": 1, "bytes": [1, 2, 3, 4]}), "cannot be [1,2,3,4]"),
            (json!({"id": 1, "bytes": "13"}), "cannot be \"13\""),
            (json!({"id": 1, "share": 1.1}), "it must be a number of at most 1."),
            (json!({"id": 1, "more": []}), "it must be an object."),
            (json!({"id": 1, "process": 1}), "There is no argument \"process\". Possible: bytes, id, kind"),
        ];
        for (given, expected) in rows {
            let Value::Object(arguments) = given.clone() else { panic!("{given}") };
            let words = check(&schema(), arguments).unwrap_err();
            assert!(words.contains(expected), "{given}: {words}");
            assert!(words.chars().count() < 200, "{words}");
        }
    }

    #[test]
    fn other_arguments_pass_where_the_schema_lets_them() {
        let Value::Object(given) = json!({"a": 1, "b": null}) else { panic!() };
        assert_eq!(check(&json!({"type": "object", "properties": {}}), given.clone()).unwrap().len(), 1);
        let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
        assert_eq!(check(&none, given).unwrap_err(), "There is no argument \"a\". Possible: none.");
    }

    proptest::proptest! {
        #[test]
        fn an_integer_is_taken_in_each_spelling_and_no_other(number in proptest::num::i64::ANY) {
            let schema = json!({"properties": {"n": {"type": "integer"}}});
            let taken = |value: Value| check(&schema, Map::from_iter([("n".to_owned(), value)])).map(|all| all["n"].clone());
            assert_eq!(taken(number.into()), Ok(number.into()));
            assert_eq!(taken(number.to_string().into()), Ok(number.into()));
            assert!(taken(format!("{number}x").into()).is_err());
            assert!(taken((number as f64 / EXACT + 0.123).into()).is_err());
        }
    }
}
