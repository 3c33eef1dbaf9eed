//! Values in transcripts: what stands for something else in what is sent, and what fits what has come
//! (`conformance/README.md`, Values). Pure; `case` checks them when it reads a transcript, `play` uses them.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use serde_json::{Map, Value, json};

/// What names stand for in one case.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    names: BTreeMap<String, Value>,
}

impl Bindings {
    pub fn bind(&mut self, name: &str, value: Value) {
        self.names.insert(name.to_owned(), value);
    }

    fn get(&self, name: &str) -> Result<&Value, String> {
        self.names.get(name).ok_or_else(|| format!("nothing is bound as {name:?} yet"))
    }
}

/// The operator and its argument, if this is a special object.
fn special(value: &Value) -> Option<(&str, &Value)> {
    let object = value.as_object()?;
    let (key, argument) = object.iter().find(|(key, _)| key.starts_with('$'))?;
    let alone = object.len() == 1 || (key == "$bind" && object.len() == 2 && object.contains_key("to"));
    alone.then_some((key, argument))
}

/// What a value says once everything in it that stands for something else has been replaced.
pub fn fill(value: &Value, bindings: &Bindings) -> Result<Value, String> {
    if let Some((operator, argument)) = special(value) {
        return stands_for(operator, argument, bindings);
    }
    Ok(match value {
        Value::Array(items) => items.iter().map(|item| fill(item, bindings)).collect::<Result<_, _>>()?,
        Value::Object(members) => {
            let there = members.iter().filter(|(_, member)| !is_absent(member));
            let filled = there.map(|(key, member)| Ok((key.clone(), fill(member, bindings)?)));
            Value::Object(filled.collect::<Result<Map<_, _>, String>>()?)
        }
        plain => plain.clone(),
    })
}

/// Whether this is the mark of a key that is not there.
pub fn is_absent(value: &Value) -> bool {
    special(value).is_some_and(|(operator, _)| operator == "$absent")
}

fn stands_for(operator: &str, argument: &Value, bindings: &Bindings) -> Result<Value, String> {
    let text = |value: &Value| match fill(value, bindings)? {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(format!("{operator} of {other}")),
    };
    let malformed = || format!("{operator} cannot have {argument}");
    match operator {
        "$ref" => bindings.get(argument.as_str().ok_or_else(malformed)?).cloned(),
        "$concat" => {
            let parts = argument.as_array().ok_or_else(malformed)?;
            Ok(json!(parts.iter().map(text).collect::<Result<String, _>>()?))
        }
        "$repeat" => match argument.as_array().map(Vec::as_slice) {
            Some([part, times]) => {
                let times = times.as_u64().and_then(|n| usize::try_from(n).ok()).ok_or_else(malformed)?;
                Ok(json!(text(part)?.repeat(times)))
            }
            _ => Err(malformed()),
        },
        "$lines" => match argument.as_array().map(Vec::as_slice) {
            Some([from, to]) => {
                let (from, to) = from.as_i64().zip(to.as_i64()).ok_or_else(malformed)?;
                let mut lines = String::new();
                (from..=to).for_each(|n| lines.extend([n.to_string(), "\n".to_owned()]));
                Ok(json!(lines))
            }
            _ => Err(malformed()),
        },
        "$absent" => Err("$absent can only be the value of a key".to_owned()),
        other => Err(format!("{other} does not stand for a value")),
    }
}

/// Whether a value fits a pattern; if so, what the pattern binds is bound.
///
/// # Errors
/// Where it does not fit and why, in words.
pub fn fits(pattern: &Value, value: &Value, bindings: &mut Bindings) -> Result<(), String> {
    let mut bound = bindings.clone();
    fits_at("", pattern, Some(value), &mut bound)?;
    *bindings = bound;
    Ok(())
}

fn fits_at(at: &str, pattern: &Value, value: Option<&Value>, bindings: &mut Bindings) -> Result<(), String> {
    let place = if at.is_empty() { "the message" } else { at };
    if is_absent(pattern) {
        return value.map_or(Ok(()), |value| Err(format!("{place}: is {}, but should be absent", brief(value))));
    }
    let Some(value) = value else {
        // One of several things, of which one is not to be there.
        let options =
            special(pattern).filter(|(operator, _)| *operator == "$oneOf").and_then(|(_, options)| options.as_array());
        let may_be_absent = options.is_some_and(|options| options.iter().any(is_absent));
        return if may_be_absent { Ok(()) } else { Err(format!("{place}: is absent")) };
    };
    let wrong = |expected: String| Err(format!("{place}: is {}, not {expected}", brief(value)));
    if let Some((operator, argument)) = special(pattern) {
        let as_it_should = match operator {
            "$bind" => {
                if let Some(to) = pattern.get("to") {
                    fits_at(at, to, Some(value), bindings)?;
                }
                bindings.bind(argument.as_str().unwrap_or_default(), value.clone());
                true
            }
            "$type" => has_type(argument.as_str().unwrap_or_default(), value),
            "$oneOf" => {
                let options = argument.as_array().map(Vec::as_slice).unwrap_or_default();
                options.iter().any(|option| {
                    let mut tried = bindings.clone();
                    let fits = fits_at(at, option, Some(value), &mut tried).is_ok();
                    if fits {
                        *bindings = tried;
                    }
                    fits
                })
            }
            "$range" => value.as_f64().is_some_and(|number| {
                let bound = |index: usize| argument.get(index).and_then(Value::as_f64);
                bound(0).is_none_or(|low| number >= low) && bound(1).is_none_or(|high| number <= high)
            }),
            "$re" => {
                let regex = compile(argument)?;
                value.as_str().is_some_and(|text| find(&regex, text, bindings))
            }
            "$exact" => {
                fits_at(at, argument, Some(value), bindings)?;
                let more = |object: &Map<String, Value>| object.keys().any(|key| argument.get(key).is_none());
                value.as_object().is_some_and(|object| !more(object))
            }
            _ => equal(&stands_for(operator, argument, bindings)?, value),
        };
        return if as_it_should { Ok(()) } else { wrong(brief(pattern)) };
    }
    match (pattern, value) {
        (Value::Object(members), Value::Object(object)) => members.iter().try_for_each(|(key, member)| {
            let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
            fits_at(&at, member, object.get(key), bindings)
        }),
        (Value::Array(items), Value::Array(list)) if items.len() == list.len() => {
            let mut pairs = items.iter().zip(list).enumerate();
            pairs.try_for_each(|(i, (item, value))| fits_at(&format!("{at}[{i}]"), item, Some(value), bindings))
        }
        _ if equal(pattern, value) => Ok(()),
        _ => wrong(brief(pattern)),
    }
}

/// The expression of a `$re`.
pub fn compile(argument: &Value) -> Result<Regex, String> {
    let text = argument.as_str().ok_or_else(|| format!("$re cannot have {argument}"))?;
    Regex::new(text).map_err(|e| e.to_string())
}

/// Whether the expression is found; binds its named groups if so.
pub fn find(regex: &Regex, text: &str, bindings: &mut Bindings) -> bool {
    let Some(captures) = regex.captures(text) else { return false };
    for name in regex.capture_names().flatten() {
        if let Some(group) = captures.name(name) {
            bindings.bind(name, json!(group.as_str()));
        }
    }
    true
}

fn has_type(name: &str, value: &Value) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

/// Equal as JSON, numbers by value.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => a == b || (a.is_f64() != b.is_f64() && a.as_f64() == b.as_f64()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => one == other,
    }
}

/// A value, short enough for a line.
pub fn brief(value: &Value) -> String {
    shorten(value.to_string())
}

/// A text, short enough for a line.
pub fn shorten(mut text: String) -> String {
    const MOST: usize = 300;
    if text.len() > MOST {
        text.truncate(text.floor_char_boundary(MOST));
        text.push('…');
    }
    text
}

/// A value as it is in one round of a `repeat`.
pub fn in_round(value: &Value, round: u64) -> Value {
    match (special(value), value) {
        (Some(("$n", Value::String(stem))), _) => json!(format!("{stem}{round}")),
        (_, Value::Array(items)) => items.iter().map(|item| in_round(item, round)).collect(),
        (_, Value::Object(members)) => {
            Value::Object(members.iter().map(|(key, member)| (key.clone(), in_round(member, round))).collect())
        }
        _ => value.clone(),
    }
}

/// Which operators may stand somewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Message,
    Pattern,
}

/// Checks a value of a transcript: every operator is one, has what it needs and stands where it may, and every name is bound
/// by then. Adds what it binds to `bound`.
pub fn check(value: &Value, usage: Use, bound: &mut BTreeSet<String>) -> Result<(), String> {
    let object = match value {
        Value::Array(items) => return items.iter().try_for_each(|item| check(item, usage, bound)),
        Value::Object(object) => object,
        _ => return Ok(()),
    };
    let Some((operator, argument)) = special(value) else {
        if let Some(key) = object.keys().find(|key| key.starts_with('$')) {
            return Err(format!("{key} does not stand alone"));
        }
        return object.values().try_for_each(|member| check(member, usage, bound));
    };
    let malformed = || Err(format!("{operator} cannot have {}", brief(argument)));
    if usage == Use::Message && ["$bind", "$type", "$oneOf", "$range", "$re", "$exact"].contains(&operator) {
        return Err(format!("{operator} can only stand in a pattern"));
    }
    match (operator, argument) {
        ("$ref", Value::String(name)) if bound.contains(name) => Ok(()),
        ("$ref", Value::String(name)) => Err(format!("{name:?} is not bound before it is used")),
        ("$n", _) => Err("$n is a text and stands in a repeat".to_owned()),
        ("$concat", Value::Array(parts)) => parts.iter().try_for_each(|part| check(part, Use::Message, bound)),
        ("$repeat", Value::Array(parts)) if parts.len() == 2 && parts[1].is_u64() => {
            check(&parts[0], Use::Message, bound)
        }
        ("$lines", Value::Array(parts)) if parts.len() == 2 && parts.iter().all(Value::is_i64) => Ok(()),
        ("$absent", Value::Bool(true)) => Ok(()),
        ("$bind", Value::String(name)) => {
            if let Some(to) = object.get("to") {
                check(to, usage, bound)?;
            }
            bound.insert(name.clone());
            Ok(())
        }
        ("$type", Value::String(name)) => {
            let known = ["string", "integer", "number", "boolean", "null", "array", "object"].contains(&name.as_str());
            if known { Ok(()) } else { malformed() }
        }
        ("$oneOf", Value::Array(options)) if !options.is_empty() => {
            options.iter().try_for_each(|option| check(option, usage, bound))
        }
        ("$range", Value::Array(bounds))
            if bounds.len() == 2 && bounds.iter().all(|b| b.is_null() || b.is_number()) =>
        {
            Ok(())
        }
        ("$re", Value::String(_)) => {
            let regex = compile(argument)?;
            bound.extend(regex.capture_names().flatten().map(ToOwned::to_owned));
            Ok(())
        }
        ("$exact", Value::Object(_)) => check(argument, usage, bound),
        (
            "$ref" | "$concat" | "$repeat" | "$lines" | "$absent" | "$bind" | "$type" | "$oneOf" | "$range" | "$re"
            | "$exact",
            _,
        ) => malformed(),
        _ => Err(format!("{operator} is not an operator of this format")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_filled_in() {
        let mut bindings = Bindings::default();
        bindings.bind("p", json!("abc"));
        let rows = [
            (json!({"a": {"$ref": "p"}, "b": {"$absent": true}}), json!({"a": "abc"})),
            (json!({"$concat": [{"$ref": "p"}, "/", "x"]}), json!("abc/x")),
            (json!([{"$repeat": ["ab", 3]}]), json!(["ababab"])),
            (json!({"$lines": [9, 11]}), json!("9\n10\n11\n")),
        ];
        for (value, filled) in rows {
            assert_eq!(fill(&value, &bindings).unwrap(), filled);
        }
        assert!(fill(&json!({"$ref": "q"}), &bindings).is_err());
    }

    #[test]
    fn a_round_has_its_number() {
        let value = json!([{"id": {"$n": "r"}}, {"$concat": ["a", {"$n": ""}]}]);
        assert_eq!(in_round(&value, 7), json!([{"id": "r7"}, {"$concat": ["a", "7"]}]));
    }

    #[test]
    fn what_fits_and_what_does_not() {
        let rows = [
            (json!({"a": 1}), json!({"a": 1, "b": 2}), true),
            (json!({"a": 5}), json!({"a": 5.0}), true),
            (json!({"$exact": {"a": 1}}), json!({"a": 1, "b": 2}), false),
            (json!({"$exact": {"a": {"$type": "integer"}}}), json!({"a": 1}), true),
            (json!({"b": {"$absent": true}}), json!({"b": null}), false),
            (json!([1, {"$range": [2, null]}]), json!([1, 9]), true),
            (json!([1]), json!([1, 2]), false),
            (json!({"$oneOf": ["a", {"$re": "^b+$"}]}), json!("bbb"), true),
            (json!({"$oneOf": ["a", "b"]}), json!("c"), false),
            (json!({"b": {"$oneOf": [1, {"$absent": true}]}}), json!({}), true),
            (json!({"b": {"$oneOf": [1, {"$absent": true}]}}), json!({"b": 2}), false),
            (json!({"$type": "integer"}), json!(true), false),
            (json!({"$range": [0, 1]}), json!("1"), false),
        ];
        for (pattern, value, expected) in rows {
            let found = fits(&pattern, &value, &mut Bindings::default());
            assert_eq!(found.is_ok(), expected, "{pattern} and {value}: {found:?}");
        }
    }

    #[test]
    fn what_is_bound_is_used_and_a_failure_binds_nothing() {
        let mut bindings = Bindings::default();
        fits(&json!({"id": {"$bind": "i", "to": {"$re": "(?P<x>[0-9])"}}}), &json!({"id": "a1"}), &mut bindings)
            .unwrap();
        assert_eq!(fill(&json!([{"$ref": "i"}, {"$ref": "x"}]), &bindings).unwrap(), json!(["a1", "1"]));
        let both = json!({"a": {"$bind": "a"}, "b": 1});
        assert!(fits(&both, &json!({"a": 1, "b": 2}), &mut bindings).is_err());
        assert!(fill(&json!({"$ref": "a"}), &bindings).is_err());
    }

    #[test]
    fn what_is_malformed_is_said() {
        let rows = [
            (json!({"$what": 1}), "not an operator"),
            (json!({"$ref": "q"}), "not bound"),
            (json!({"$re": "("}), "unclosed"),
            (json!({"$type": "text"}), "cannot have"),
            (json!({"$ref": "p", "x": 1}), "does not stand alone"),
            (json!({"$n": "x"}), "stands in a repeat"),
        ];
        for (value, words) in rows {
            let error = check(&value, Use::Pattern, &mut BTreeSet::from(["p".to_owned()])).unwrap_err();
            assert!(error.contains(words), "{value}: {error}");
        }
        let error = check(&json!({"$bind": "x"}), Use::Message, &mut BTreeSet::new()).unwrap_err();
        assert!(error.contains("only stand in a pattern"), "{error}");
    }
}
