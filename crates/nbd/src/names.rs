//! Names of the numbers of the handshake, for messages.

use std::fmt;

use crate::wire::{option, reply};

/// Displays an option by its name in the protocol's description, such as `NBD_OPT_GO`; an option without one by its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionName(pub(crate) u32);

/// Displays the type of an option reply by its name, such as `NBD_REP_ERR_POLICY`; a type without one by its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyName(pub(crate) u32);

impl fmt::Display for OptionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            option::EXPORT_NAME => "NBD_OPT_EXPORT_NAME",
            option::ABORT => "NBD_OPT_ABORT",
            option::LIST => "NBD_OPT_LIST",
            option::STARTTLS => "NBD_OPT_STARTTLS",
            option::INFO => "NBD_OPT_INFO",
            option::GO => "NBD_OPT_GO",
            option::STRUCTURED_REPLY => "NBD_OPT_STRUCTURED_REPLY",
            option::LIST_META_CONTEXT => "NBD_OPT_LIST_META_CONTEXT",
            option::SET_META_CONTEXT => "NBD_OPT_SET_META_CONTEXT",
            option::EXTENDED_HEADERS => "NBD_OPT_EXTENDED_HEADERS",
            unknown => return write!(f, "option {unknown}"),
        })
    }
}

impl fmt::Display for ReplyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            reply::ACK => "NBD_REP_ACK",
            reply::SERVER => "NBD_REP_SERVER",
            reply::INFO => "NBD_REP_INFO",
            reply::META_CONTEXT => "NBD_REP_META_CONTEXT",
            reply::ERR_UNSUP => "NBD_REP_ERR_UNSUP",
            reply::ERR_POLICY => "NBD_REP_ERR_POLICY",
            reply::ERR_INVALID => "NBD_REP_ERR_INVALID",
            reply::ERR_TLS_REQD => "NBD_REP_ERR_TLS_REQD",
            reply::ERR_UNKNOWN => "NBD_REP_ERR_UNKNOWN",
            reply::ERR_TOO_BIG => "NBD_REP_ERR_TOO_BIG",
            reply::ERR_EXT_HEADER_REQD => "NBD_REP_ERR_EXT_HEADER_REQD",
            unknown => return write!(f, "reply {unknown:#x}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::client::HandshakeError;
    use crate::wire::{option, reply};

    #[test]
    fn messages_name_options_and_errors() {
        let wrong = HandshakeError::WrongOption { asked: option::GO, got: option::LIST };
        assert_eq!(wrong.to_string(), "the server answers NBD_OPT_LIST where NBD_OPT_GO was asked");
        let unknown = HandshakeError::WrongOption { asked: option::GO, got: 77 };
        assert_eq!(unknown.to_string(), "the server answers option 77 where NBD_OPT_GO was asked");
        let message = "not today".to_owned();
        let (option, code) = (option::STARTTLS, reply::ERR_POLICY);
        assert_eq!(
            HandshakeError::Refused { option, code, message }.to_string(),
            "the server refused NBD_OPT_STARTTLS with NBD_REP_ERR_POLICY: not today"
        );
        assert_eq!(
            HandshakeError::Malformed(option).to_string(),
            "the server sent a malformed reply to NBD_OPT_STARTTLS"
        );
    }
}
