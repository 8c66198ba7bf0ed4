//! The date, for templates that include it.

use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

/// The function `strftime_now`, in UTC.
pub(super) fn strftime_now(format: &str) -> Result<String, Error> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    strftime(format, since.as_secs())
}

/// Formats a time, in seconds since the beginning of 1970, with `%Y`, `%m`, `%d`, `%B`, `%b`, `%A`, `%a`, `%H`, `%M`,
/// `%S`, `%y` and `%%` of C's `strftime`.
fn strftime(format: &str, seconds: u64) -> Result<String, Error> {
    let days = seconds / 86_400;
    let (year, month, day) = date(days);
    let (month_name, day_name) = (MONTHS[month - 1], DAYS[(days % 7) as usize]);
    let (mut out, mut rest) = (String::new(), format.chars());
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        out += &match rest.next() {
            Some('Y') => year.to_string(),
            Some('y') => format!("{:02}", year % 100),
            Some('m') => format!("{month:02}"),
            Some('d') => format!("{day:02}"),
            Some('B') => month_name.to_owned(),
            Some('b') => month_name[..3].to_owned(),
            Some('A') => day_name.to_owned(),
            Some('a') => day_name[..3].to_owned(),
            Some('H') => format!("{:02}", seconds / 3600 % 24),
            Some('M') => format!("{:02}", seconds / 60 % 60),
            Some('S') => format!("{:02}", seconds % 60),
            Some('%') => "%".to_owned(),
            other => {
                let letter = other.map_or_else(String::new, String::from);
                let text = format!("strftime_now knows no %{letter}");
                return Err(Error::new(ErrorKind::InvalidOperation, text));
            }
        };
    }
    Ok(out)
}

/// Year, month from 1 and day from 1 of a day, which is counted from January 1, 1970.
fn date(mut days: u64) -> (u64, usize, u64) {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // Any 400 years in a row have the same number of days.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 0;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::strftime;

    #[test]
    fn dates_are_those_of_python() {
        let format = "%A %a, %d %B %b %Y %y-%m %H:%M:%S 100%%";
        // datetime.fromtimestamp(seconds, timezone.utc).strftime(format)
        for (seconds, text) in [
            (0, "Thursday Thu, 01 January Jan 1970 70-01 00:00:00 100%"),
            (951_782_399, "Monday Mon, 28 February Feb 2000 00-02 23:59:59 100%"),
            (951_868_800, "Wednesday Wed, 01 March Mar 2000 00-03 00:00:00 100%"),
            (1_732_845_601, "Friday Fri, 29 November Nov 2024 24-11 02:00:01 100%"),
            (4_107_542_399, "Sunday Sun, 28 February Feb 2100 00-02 23:59:59 100%"),
            (4_107_542_400, "Monday Mon, 01 March Mar 2100 00-03 00:00:00 100%"),
            (16_725_225_599, "Thursday Thu, 31 December Dec 2499 99-12 23:59:59 100%"),
        ] {
            assert_eq!(strftime(format, seconds).unwrap(), text);
        }
        assert!(strftime("%Q", 0).is_err() && strftime("%", 0).is_err());
    }
}
