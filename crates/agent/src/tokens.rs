//! Tokens for the API over TCP, from a file with a name, a role and a secret on each line.

use std::path::Path;

use parda_api::Role;
use parda_tls::read_secret;

/// The largest file of tokens, in bytes.
const MAX: u64 = 1 << 20;

/// The shortest secret that is accepted, in bytes.
const SHORTEST: usize = 16;

/// Tokens by the hashes of their secrets, which are compared in constant time.
#[derive(Clone, Default)]
pub(crate) struct Tokens(Vec<(blake3::Hash, String, Role)>);

impl Tokens {
    /// Reads a file of tokens. Error messages show no secret.
    pub(crate) fn read(path: &Path) -> Result<Tokens, String> {
        let at = path.display();
        let text = read_secret(path, MAX)
            .map_err(|fault| format!("{at}: tokens cannot be read: {fault}"))?;
        Tokens::parse(&text).map_err(|(line, error)| format!("{at}:{line}: {error}"))
    }

    /// Whether there are no tokens.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn parse(text: &str) -> Result<Tokens, (usize, String)> {
        let mut tokens: Vec<(blake3::Hash, String, Role)> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |message: &str| Err((at + 1, message.to_owned()));
            let [name, role, secret] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                return wrong("must be NAME ROLE SECRET");
            };
            let Ok(role) = serde_json::from_value::<Role>(role.into()) else {
                return wrong("the role must be read, write or admin");
            };
            if secret.len() < SHORTEST {
                return wrong("the secret must be of 16 characters or more: openssl rand -hex 32");
            }
            if tokens.iter().any(|(_, other, _)| other == name) {
                return wrong("the name is that of another line: names must differ");
            }
            let hash = blake3::hash(secret.as_bytes());
            if tokens.iter().any(|(other, _, _)| *other == hash) {
                return wrong("the secret is that of another line: secrets must differ");
            }
            tokens.push((hash, name.to_owned(), role));
        }
        Ok(Tokens(tokens))
    }

    /// Name and role of the token with this secret.
    pub(crate) fn find(&self, secret: &str) -> Option<(String, Role)> {
        let hash = blake3::hash(secret.as_bytes());
        // All tokens are compared, each in constant time.
        self.0.iter().fold(
            None,
            |found, (other, name, role)| {
                if *other == hash { Some((name.clone(), *role)) } else { found }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_has_a_name_and_a_role() {
        let text = "# who\n\nops write 0123456789abcdef\nscreen read fedcba9876543210\n";
        let tokens = Tokens::parse(text).unwrap();
        assert_eq!(tokens.find("0123456789abcdef"), Some(("ops".to_owned(), Role::Write)));
        assert_eq!(tokens.find("fedcba9876543210"), Some(("screen".to_owned(), Role::Read)));
        assert_eq!(tokens.find(""), None);
        assert_eq!(tokens.find("0123456789abcde"), None);
    }

    #[test]
    fn wrong_lines_are_named_without_their_secrets() {
        for (text, line) in [
            ("ops write", 1),
            ("\nops owner 0123456789abcdef", 2),
            ("ops write short", 1),
            ("a read 0123456789abcdef\na read 0123456789abcdeg", 2),
            ("a write 0123456789abcdef\n\nb read 0123456789abcdef", 3),
        ] {
            let (at, message) = Tokens::parse(text).map(drop).unwrap_err();
            assert_eq!(at, line, "{text}");
            assert!(!message.contains("012345") && !message.contains("short"), "{message}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "ops write 0123456789abcdef\n").unwrap();
        assert!(Tokens::read(file.path()).is_ok());
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o604)).unwrap();
        let error = Tokens::read(file.path()).map(drop).unwrap_err();
        assert!(error.contains("chmod 0600"), "{error}");
    }
}
