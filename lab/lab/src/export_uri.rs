//! NBD URIs of exports at unix sockets.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// URI of an export, with reserved characters encoded: the directory for temporary files may have a space in its name.
#[must_use]
pub fn export_uri(socket: &Path, export: &str) -> String {
    let encoded = socket.as_os_str().as_bytes().iter().map(|&byte| match byte {
        byte if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) => char::from(byte).into(),
        byte => format!("%{byte:02X}"),
    });
    format!("nbd+unix:///{export}?socket={}", encoded.collect::<String>())
}

#[cfg(test)]
mod tests {
    use parda_address::{Address, Uri};

    use super::*;

    #[test]
    fn a_directory_with_a_space_or_an_ampersand_is_encoded() {
        let socket = Path::new("/tmp/a b&é/x.sock");
        let uri = export_uri(socket, "db");
        assert_eq!(uri, "nbd+unix:///db?socket=/tmp/a%20b%26%C3%A9/x.sock");
        let parsed: Uri = uri.parse().unwrap();
        assert_eq!(parsed.address, Address::Unix(socket.to_owned()));
    }
}
