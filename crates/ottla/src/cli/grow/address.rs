//! The new controller's id and address: `3001@10.0.0.9:9093`, as in `controller.quorum.voters`.

use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerAddress {
    pub id: i32,
    /// An IPv6 address without its brackets.
    pub host: String,
    pub port: u16,
}

impl FromStr for ControllerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ControllerAddress, String> {
        let (id, address) = text
            .split_once('@')
            .ok_or("must be ID@HOST:PORT, e.g. 3001@10.0.0.9:9093")?;
        let id = id
            .parse()
            .ok()
            .filter(|id| *id >= 0)
            .ok_or_else(|| format!("the id '{id}' is not a number from 0 to {}", i32::MAX))?;
        let (host, port) = address
            .rsplit_once(':')
            .ok_or_else(|| format!("the address '{address}' has no port"))?;
        let port = port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| format!("the port '{port}' is not a number from 1 to 65535"))?;
        let host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(address) => address,
            None if host.contains(':') => {
                return Err(format!("the host '{host}' needs brackets: [{host}]:{port}"));
            }
            None => host,
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:%".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_name) {
            return Err(format!("'{host}' is not a host name"));
        }
        if ["0.0.0.0", "::", "0:0:0:0:0:0:0:0"].contains(&host) {
            return Err(format!(
                "{host} cannot be connected to: name the address at which brokers and other controllers reach the controller"
            ));
        }
        Ok(ControllerAddress {
            id,
            host: host.to_owned(),
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<(i32, &str, u16), &str>) {
        let found = text.parse::<ControllerAddress>();
        match (found, expected) {
            (Ok(found), Ok((id, host, port))) => {
                assert_eq!((found.id, &*found.host, found.port), (id, host, port), "{text}");
            }
            (Err(problem), Err(part)) => assert!(problem.contains(part), "{text}: {problem}"),
            (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn an_id_and_an_address_are_read_and_errors_name_the_wrong_part() {
        check("3001@10.0.0.9:9093", Ok((3001, "10.0.0.9", 9093)));
        check("0@kafka-1.example:1", Ok((0, "kafka-1.example", 1)));
        check("7@[::1]:65535", Ok((7, "::1", 65535)));
        check("10.0.0.9:9093", Err("ID@HOST:PORT"));
        check("-1@a:1", Err("'-1'"));
        check("x@a:1", Err("'x'"));
        check("2147483648@a:1", Err("2147483647"));
        check("1@a", Err("no port"));
        check("1@a:0", Err("'0'"));
        check("1@a:65536", Err("'65536'"));
        check("1@:9093", Err("'' is not a host name"));
        check("1@a b:9093", Err("'a b'"));
        check("1@::1:9093", Err("[::1]:9093"));
        check("1@0.0.0.0:9093", Err("0.0.0.0 cannot be connected to"));
        check("1@[::]:9093", Err(":: cannot be connected to"));
    }
}
