//! The regular expressions and the topic names of `patterns.rs`: lists between blanks.

/// Names are at most 249 letters, digits, `.`, `_` and `-`.
pub const NAMES: [&str; 32] = [
    "orders",
    "orders-2",
    "orders.v1",
    "orders.v2",
    "Orders",
    "ORDERS",
    "my-orders",
    "orders_eu",
    "orders-eu.retry.5m",
    "bills-17",
    "bills-",
    "bills-007",
    "payments.dlq",
    "payments_dlq",
    "paymentsXdlq",
    "__consumer_offsets",
    "__transaction_state",
    "a",
    "A",
    "b",
    "z",
    "0",
    "7",
    "-",
    "_",
    "a-b",
    "a.b",
    "aa",
    "aab",
    "aabb",
    "abcabc",
    "xn--9-az_09.AZ",
];

/// Where we differ from RE2/J, and why that is accepted.
pub const DEVIATIONS: [(&str, &str); 4] = [
    (
        r"a+\Q\E+",
        "an empty quotation hides the first repetition from RE2/J",
    ),
    ("a(?i)*", "RE2/J repeats what stands before the flags"),
    ("a*(?i)*", "RE2/J repeats what stands before the flags"),
    (
        r"\p{Greek}",
        "no name contains a character of a script other than Latin and Common",
    ),
];

/// What people write for topics.
const EVERYDAY: &str = r##"
orders orders.* ^orders.*$ ^orders orders$ .* .+ .*orders.* orders|bills-.*
(orders|bills-[0-9]+) (?:orders|my-orders) orders\..* orders\.v[12] orders\.v\d orders\.v\d+
orders[._-].* orders[\._\-].* orders[-._]\w+ [\w-.]+ [\w.-]+ [\w\-.]+ [\w-]+ [-\w]+ [.\w-]+
[a-z\d-_.]+ [\d-z]+ [\d-.]+ [a-z0-9-_.]+ [a-zA-Z0-9._-]+ [a-z-9]+ [a-z]+-[0-9]+ \w+-\d+ \w+ \W
\d \D+ \s \S+ [^_].* [^_\W].* (?i)orders (?i:orders) (?i)ORDERS.* (?i)[a-z]+ (?i)[^a]
(?i)[^a-m]+ (?i)o(?-i)rders (?i:o)rders ((?i)o)rders (?s).* (?m)^orders$ (?U)a+ (?is)ORDERS
(?i-s)ORDERS (?i-s:ORDERS) (?s-i:orders) bills-[0-9]{2} bills-[0-9]{1,3} bills-[0-9]{3,}
bills-\d* bills-\d? payments.dlq payments\.dlq payments[.]dlq payments(\.|_)dlq __.*
^__consumer_offsets$ [^_].*|__.* (orders|payments)(\.|-|_)?(dlq|v\d)? .*\.(retry|dlq)(\..*)?
^(?:orders|bills)-(?P<number>\d+)$ ^(?:orders|bills)-(?<number>\d+)$ \Qorders.v1\E
\Qorders.v1\E|a \Qorders.\Ev\d orders\-2 orders\_eu \Aorders\z \borders\b \borders\b.*
.*\borders \Borders my\B.* orders-eu.retry.5m * orders* *.orders orders-* orders,bills-17
orders.v1|orders.v2| |orders a||b () (|a) (a|b|) (?!orders).* (?=orders).* (?<!my-)orders
(?<=my-)orders ^(?!__).* ^(?!orders$).*$ (?>orders) orders++ orders.*+ orders?+ (a)\1
(?P<x>a)(?P=x) (?P<x>a)\k<x>
"##;

/// Escapes.
const ESCAPES: &str = r##"
\a \f \n \r \t \v \e \E \Q \Q\E \Qa\Qb\E \Qa\E\E \Qa\E+ \Qab\E+ \Qa+\E a\Q\E+ a+\Q\E+ \Q[\E
\Q\\E \Qa.b \Qa|b\E (\Qa)\E) \x61 \x6 \x \x{61} \x{0061} \x{} \x{61 \x{110000} \x{10FFFF} \x{g}
\xg1 \u0061 \u{61} \U00000061 \141 \055 \0 \00 \1 \8 \9 \18 \12 \101 \1012 \c \cA \C \G \K \R \X
\Z \h \H \i \j \N \pL \pLu \PL \p{L} \p{L}+ \p{Lu}+ \p{Ll}+ \p{^L} \P{L} \P{^L} \p{N} \p{Nd}+
\p{P} \p{Pd} \p{Pc} \p{Po} \p{S} \p{Z} \p{C} \p{M} \p{Any}+ \p{Latin}+ \p{Common}+ \p{Greek}
\p{Letter} \p{Alpha} \p{Lower} \p{IsLatin} \p{latin} \p{ \p{} \p \P \pX (?i)\p{Lu}+ [\p{Lu}\d]+
[^\p{Lu}]+ [\pL-]+ \_ \- \! \# \% \& \, \/ \: \; \< \= \> \@ \' \` \~ \" \é \\ \. \* \[ \] \{ \}
\^ \$ \| \( a\ \b \B \b{start} \b*a \ba \b+a \<orders\> a\b.* \A\A \z\z \A*a \y \w\d \d\w* \W+
\s*a\s*
"##;

/// Character classes.
const CLASSES: &str = r##"
[a] [^a] [] [^] []a] [^]a] [a [ ] a] [a-]+ [-a]+ [a-c]+ [c-a] [a-a] [a-b-c]+ [a-z--9] [+--]
[--/] [--a] [---] [a--b] [!--] [.-_] [_-.] [+-.] [a-zA-Z] [0-9a-fA-F] [[] [[a] [a[b] [a[b]]
[[a-b]c] [a&&b] [a-z&&[^b]] [a||b] [a~~b] [&] [&&] [~~a] [#] [[:alpha:]] [[:alpha:]]+
[[:^alpha:]] [[:digit:][:alpha:]] [[:alnum:]_.-]+ [[:word:]]+ [[:lower:]]+ [[:upper:]]+
[[:punct:]] [[:space:]] [[:xdigit:]]+ [[:ascii:]]+ [[:blank:]] [[:cntrl:]] [[:graph:]]+
[[:print:]]+ [[:foo:]] [[:Alpha:]] [[:alpha]] [[:alpha]x:] [[:alpha:] [[:alpha:]-z]+
[a-[:alpha:]] [:alpha:] [[=a=]] [[.a.]] [^[:alpha:]] [[:^digit:]a]+ [\d] [^\d] [\D] [\w] [\W]
[^\W] [\s] [\S] [\d\D]+ [a-\d] [\d-a] [\w-a]+ [\b] [\B] [\A] [\z] [\Qa\E] [\E] [\x61-\x63]
[\x{61}-\x{63}] [\141-\143] [\0-\x7f]+ [\0] [\1] [\n\t] [\a] [\e] [\v] [\-] [\]] [\]a] [\[a]
[\^a] [^^a] [a^] [\\] [\.] [\_a] [\!-\~]+ [.] [*] [+] [$] [|] [(a)] [{}] [\q] [\c] [\C] [\x]
[\pN] [\p{Lu}-] [\p{Nope}] [é] [à-é] [^é] [а-я]+ [a-я]+ é é*a [\é] [^\x00-\x{10FFFF}]
[\x00-\x{10FFFF}]+ (?i)[[:upper:]]+ (?i)[[:^upper:]] (?i)[A-M]+ (?i)[^A-M]+ (?i)[\x41] [a-z]{2}
[a]b [a]* [a]** [a]{2} [ab]?[ab]??
"##;

/// Groups, flags and repetitions.
const GROUPS: &str = r##"
( ) a) (a (a)) ((a) (? (?: (?:a (?i (?) (?)a (?-) (?-i)a (?i-) (?i-:a) (?--i) (?i--s)a (?ii)A
(?i-i)a (?x)a (?u)a (?-u)a (?R)a (?d)a (?n)a (?L)a (?imsU)A (?imsU-imsU)a (?i) a(?i) a(?i)b|c
(a(?i)b) (a(?i)b|C) (?i)* a(?i)* a*(?i)* (?:)*a ()*a (?:)a (?P<n>a) (?P<n>a (?P<>a) (?P<1>a)
(?P<1a>a) (?P<a1>a) (?P<_>a) (?P<n-m>a) (?P<n.m>a) (?P<n[0]>a) (?P<n>a)(?P<n>b) (?P<n>a)(?P<m>a)
(?P<é>a) (?P=n) (?P>n) (?P<n (?Pn) (?<n>a) (?<n (?<n>a)(?<n>b) (?'n'a) (?#comment)a (?|a|b) (?1)
(?&n) (*a) (+a) (?:*a) (a|*b) a|* |* + ? ?? {2} {2}a {,2} { } a{ a} {a} a{} a{,} a{,2} a{2 a{2,
a{2,3 a{x} a{-1} a{0} a{0,0} a{0,} a{1} a{2} a{02} a{2,02} a{00} a{2}b{2} a{1,2} a{2,1} a{1000}
a{1001} a{1000,} a{1001,} a{0,1000} a{0,1001} a{99999999} a{999999999} a{1,999999999} a{2}{2}
a{2}? a{2}?? a{2}+ a{2}* (a{2}){2} (a{100}){10} (a{100}){11} (a{30}){34} ((a{10}){10}){10}
((a{10}){10}){11} (a{2,}){501} (a{2,}){500} (a{0}){1000} (a*){1000} (a{1000}|b){2} (?:a{500}){2}
(?:a{501}){2} (a{0,0}){1000} a* a+ a? a*? a+? a?? a** a*+ a+* a+{2} a?* a*?* a*?? a+?? a???
(a*)* (a+)+ (a?)*b (a*)+b a*{ a+{,2} ^* ^*a ^+a $* a$* ^^a a$$ ^{2}a (^a)+ (^a|b)* a^b a$b
(?m)a$b x*a (a|b)+ (?:a|b){3,4} (aab)b? ((((a)))) (((((((((((a))))))))))) a|b|z|0|7 (abc){2}
(abc)* a.b a.?b a#b a&b a/b a'b a"b a=b|a-b a,b a~b a\-b - -- _ __ 0 \. a\.b
"##;

/// With spaces, or nothing else.
const SPACED: [&str; 10] = [
    " orders", "orders ", "", "\\ ", "[ a]", "(?x: a )", "a{ 2}", "a{2 }", "a{2, 3}", "a -b",
];

pub fn all() -> impl Iterator<Item = &'static str> {
    let listed = [EVERYDAY, ESCAPES, CLASSES, GROUPS];
    listed.into_iter().flat_map(str::split_whitespace).chain(SPACED)
}
