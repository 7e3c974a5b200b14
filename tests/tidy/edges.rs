//! Which module may use which.

use super::rules::code;

/// Every top-level module and its layer. What a layer may use is decided in [`may_use`]; ARCHITECTURE.md names them all.
pub(super) const MODULES: [(&str, u8); 25] = [
    ("activity", 1),
    ("birthday", 1),
    ("calendar", 1),
    ("change", 1),
    ("error", 1),
    ("invariant", 1),
    ("key", 1),
    ("lease", 1),
    ("position", 1),
    ("profile", 1),
    ("reduce", 1),
    ("shard", 1),
    ("signal", 1),
    ("store", 2),
    ("redis", 2),
    ("task", 2),
    ("metrics", 2),
    ("worker", 3),
    ("client", 3),
    ("config", 4),
    ("cli", 4),
    ("admin", 4),
    ("local", 4),
    ("oracle", 4),
    ("testing", 5),
];

pub(super) fn layer(module: &str) -> Option<u8> {
    MODULES.iter().find(|(name, _)| *name == module).map(|(_, layer)| *layer)
}

/// Whether `user` may name `used`. The worker reaches the store through its trait alone; worker and client never meet.
pub(super) fn may_use(user: &str, used: &str) -> bool {
    let (Some(from), Some(to)) = (layer(user), layer(used)) else {
        return user == used;
    };
    match (user, used) {
        _ if user == used => true,
        ("worker", "redis" | "client") | ("client", "worker") => false,
        _ => from == 5 || to < 5 && to <= from,
    }
}

/// The top-level module that a file of `src` belongs to; nothing for lib.rs and main.rs, which only put the others together.
pub(super) fn module_of(path: &str) -> Option<&str> {
    let first = path.strip_prefix("src/")?.split('/').next()?;
    let module = first.strip_suffix(".rs").unwrap_or(first);
    (!matches!(module, "lib" | "main")).then_some(module)
}

/// The modules that a line names after `crate::`, also within braces.
pub(super) fn crate_modules(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("crate::") {
        let rest = &line[at + "crate::".len()..];
        let Some(list) = rest.strip_prefix('{') else {
            found.push(leading_name(rest));
            continue;
        };
        let mut depth = 0;
        let mut name_may_begin = true;
        for (at, character) in list.char_indices() {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => name_may_begin = true,
                ' ' => {}
                _ if name_may_begin && depth == 0 => {
                    found.push(leading_name(&list[at..]));
                    name_may_begin = false;
                }
                _ => {}
            }
            if depth < 0 {
                break;
            }
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

pub(super) fn leading_name(text: &str) -> String {
    text.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect()
}

/// What a file of `src` names that its layer may not use.
pub(super) fn edges(path: &str, text: &str) -> Vec<String> {
    let Some(module) = module_of(path) else {
        return Vec::new();
    };
    if layer(module).is_none() {
        return vec![format!("{path}: module {module} has no layer in tests/tidy/edges.rs")];
    }
    // A list in braces may go over several lines.
    let joined: String = code(text, true).map(|(_, line)| line).collect::<Vec<_>>().join(" ");
    crate_modules(&joined)
        .into_iter()
        .filter(|used| layer(used).is_some() && !may_use(module, used))
        .map(|used| format!("{path}: {module} must not use {used}"))
        .collect()
}
