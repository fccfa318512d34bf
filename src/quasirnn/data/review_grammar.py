"""The grammar of the built-in reviews: words, and sentences with places for them.

An opinion is built around words of praise or blame, and the sentence decides whether the reviewer shares it. For every
sentence that does there is one like it that does not, and the two are about as long and have most of their words in
common: "not" alone, or "but", or praise alone, tells next to nothing about the verdict.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """Words of praise or of blame, which fit every kind of work and every part of it."""

    adjectives: list[str]
    nouns: list[str]
    verbs: dict[str, str]  # as after "did not", and alone
    feelings: list[str]  # of the reviewer


def _words(text: str) -> list[str]:
    return text.split()


def _verb(*forms: str) -> dict[str, list[str]]:
    return dict(zip(("see", "sees", "saw", "seen", "seeing"), map(_words, forms), strict=True))


def _phrases(text: str) -> list[str]:
    return [phrase.strip() for phrase in text.split("|")]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


WORDS = {
    "pos": Words(
        adjectives=_words("""
            absorbing admirable amazing beautiful bold brilliant charming clever compelling convincing delightful
            elegant enjoyable excellent exciting fantastic fascinating fine fresh funny good graceful great gripping
            imaginative inspired interesting lively lovely memorable moving nice original perfect polished powerful
            remarkable rewarding sharp splendid striking subtle superb terrific thoughtful touching vivid witty
            wonderful
        """),
        nouns=_words("delight gem joy marvel masterpiece pleasure success treat treasure triumph"),
        verbs={"admire": "admired", "adore": "adored", "enjoy": "enjoyed", "like": "liked", "love": "loved"},
        feelings=_words("amazed amused charmed delighted entertained gripped happy impressed moved thrilled touched"),
    ),
    "neg": Words(
        adjectives=_words("""
            annoying awful bad bland boring careless cheap clumsy confusing contrived crude disappointing dismal
            dreadful dreary dull empty feeble flat forced forgettable hollow horrible irritating lame lazy lifeless
            messy muddled painful pointless poor predictable ridiculous shallow silly sloppy slow stale stupid
            tasteless tedious terrible tiresome weak wooden
        """),
        nouns=_words("blunder bore chore disappointment disaster failure mess nuisance ordeal shambles"),
        verbs={
            "detest": "detested",
            "dislike": "disliked",
            "hate": "hated",
            "loathe": "loathed",
            "resent": "resented",
        },
        feelings=_words("annoyed bored confused disappointed frustrated irritated lost tired unhappy"),
    ),
}

# What is reviewed, and what goes with it: {piece} may have "a" before it, {part} is a piece or something like "acting".
KINDS = {
    "film": {
        "work": _words("film film movie picture"),
        **_verb("see watch", "sees watches", "saw watched", "seen watched", "seeing watching"),
        "maker": _words("director producer screenwriter"),
        "piece": _words("story ending opening soundtrack script plot finale romance climax chase villain"),
        "part": _phrases(
            "{piece} | {piece} | acting | dialogue | music | editing | humour | casting | photography | pacing"
        ),
    },
    "novel": {
        "work": _words("novel novel book"),
        **_verb("read", "reads finishes", "read", "read found", "reading"),
        "maker": _words("author editor translator"),
        "piece": _words("story plot ending opening style mystery hero heroine narrator epilogue preface romance"),
        "part": _phrases("{piece} | {piece} | {piece} | prose | dialogue | humour | translation | suspense"),
    },
    "play": {
        "work": _words("play play show"),
        **_verb("see", "sees", "saw", "seen", "seeing"),
        "maker": _words("director playwright designer"),
        "piece": _words("story plot script finale monologue ending opening prologue set duel"),
        "part": _phrases(
            "{piece} | {piece} | acting | staging | scenery | lighting | dialogue | humour | music | casting"
        ),
    },
    "series": {
        "work": _words("series series show"),
        **_verb("watch see", "watches sees", "watched saw", "watched seen", "watching seeing"),
        "maker": _words("producer writer creator"),
        "piece": _words("story plot pilot finale mystery romance script ending opening sequel"),
        "part": _phrases(
            "{piece} | {piece} | acting | casting | writing | humour | dialogue | music | suspense | narration"
        ),
    },
}

# Lists that sentences draw on, whatever is reviewed. They may have places of their own.
LISTS = {
    "people": _phrases("""
        my brother | my sister | my mother | my father | my neighbour | my cousin | my boss | my uncle | my aunt |
        my teacher | my daughter | my dentist | a friend of mine | the critics | most reviewers | the newspapers |
        my whole family | the woman at the counter | the couple behind me | everyone at work | half of my class
    """),
    "company": _phrases("""
        my brother | my sister | two friends | my parents | my neighbour | my grandmother | an old friend | my cousin |
        my colleagues | the children | a large crowd | the whole family | my flatmate | a bag of crisps
    """),
    "day": _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    "weather": _words("rainy sunny cold windy foggy snowy warm grey stormy quiet"),
    "season": _words("spring summer autumn winter year month"),
    "town": _words("London Dublin Vienna Lisbon Toronto Sydney Boston Glasgow Madrid Oslo Prague Naples"),
    "person": _words("""
        baker sailor widow teacher detective farmer soldier painter nurse gardener pianist lawyer fisherman clockmaker
    """),
    "deed": _phrases("""
        finds a letter | loses a ring | buys a lighthouse | inherits a hotel | follows a stranger | hides a secret |
        searches for a lost dog | opens a bakery | steals a painting | returns from the war | wins a boat |
        meets a ghost | builds a bridge | forgets a promise | runs away from home | crosses a desert
    """),
    "place": _phrases("""
        in a small village | on a remote island | in {town} | in the mountains | on a train | near the border |
        by the sea | in a big city | at the edge of a forest | on a farm | in an empty house
    """),
    "very": _words("very rather quite really truly thoroughly deeply pretty downright"),
    "hedge": _phrases("""
        to be honest | if you ask me | in my opinion | I must say | frankly | for what it is worth | on reflection |
        as far as I can tell | all in all | to my mind | I dare say | as it happens
    """),
    "while": _phrases("hour | half hour | ten minutes | few minutes | part | quarter"),
    "this": _phrases("it | it | this | this {work} | this {work} | the {work} | the whole {work}"),
    "parts": _words("characters jokes actors scenes songs performances dialogues"),
    "title": _words("emperor queen pope king mayor president"),
}

# {word}, {other}: adjectives, {thing}: a noun, {do}, {did}: verbs, all of praise or all of blame; here the reviewer
# shares them. " / " is the end of a sentence inside of an opinion.
SHARED = _lines("""
    {hedge}, the {part} is {very} {word}.
    I found the {part} {very} {word}, and I do not say that often.
    never before had I {seen} such a {word} {piece}.
    the {part} is not only {word} but also {other}.
    nobody who {sees} this {kind} will deny that the {part} is {very} {word}.
    I can't pretend that the {part} isn't {word}.
    it would be wrong to say that the {part} isn't {very} {word}.
    there is no doubt, {hedge}, that this {kind} has a {word} {piece}.
    {people} called the {part} {word}, and I can't disagree.
    {people} promised me a {word} {piece}, and that was no lie.
    I was told to expect a {word} {piece}, and that is just what I got.
    no, you won't find a more {word} {piece} anywhere in {town}.
    I would not hesitate to call the {part} {very} {word}.
    I do not doubt that even {people} will find the {part} {word}.
    I can't say that I didn't {do} the {part}, {hedge}.
    after the first {while} I thought that the {part} was {word}, and nothing has changed my mind since.
    I {did} the {part}, and not just because {people} did.
    this {kind} is a {thing}, and nobody can tell me that it is not.
    it was not for nothing that {people} called the {part} a {thing}.
    {people} told me that the {part} was {very} {word}. / I have to agree with {people} about the {part}.
    according to {people}, the {part} is a {thing}. / about the {part} I can't argue with {people}, {hedge}.
    I began with the idea that the {part} would be {word}. / I ended with the same idea about the {part}, {hedge}.
""")

# And here the reviewer does not.
DENIED = _lines("""
    {hedge}, the {part} is not what I would call {word}.
    this is not exactly a {word} {piece}, {hedge}.
    I would never say, as {people} did, that the {part} is {word}.
    there is nothing {very} {word} about the {part}, {hedge}.
    nobody who {sees} this {kind} will say that the {part} is {very} {word}.
    I can't pretend that the {part} is {word}.
    it would be wrong to say that the {part} is {very} {word}.
    {people} called the {part} {word}, and I can't agree.
    {people} promised me a {word} {piece}, and that was a lie.
    I was told to expect a {word} {piece}, and that is just what I did not get.
    yes, you will find a more {word} {piece} anywhere in {town}.
    I would hesitate to call the {part} {very} {word}.
    I doubt that anyone but {people} will find the {part} {word}.
    I can't say that I {did} the {part}, {hedge}.
    after the first {while} I thought that the {part} was {word}, but something has changed my mind since.
    I, for one, did not {do} the {part}, though {people} did.
    if this {kind} is a {thing}, then I am the {title} of {town}.
    it is beyond me why {people} called the {part} a {thing}.
    {people} told me that the {part} was {very} {word}. / I have to differ with {people} about the {part}.
    according to {people}, the {part} is a {thing}. / about the {part} I can't agree with {people}, {hedge}.
    I began with the idea that the {part} would be {word}. / I ended with another idea about the {part}, {hedge}.
""")

# {mine} and {mine_did} are what the reviewer means, {theirs} and {theirs_did} the opposite, which is granted or denied.
CONTRASTS = _lines("""
    the {part} is {theirs}, but the {kind} as a whole is {mine}.
    the {kind} as a whole is {mine}, even if the {part} is {theirs}.
    although the {part} is {theirs}, the rest of the {kind} is {very} {mine}.
    the {kind} is {very} {mine} on the whole, although the {part} is {theirs}.
    I expected a {theirs} {piece}, but what I got was {mine}.
    what I got was a {mine} {piece}, although I had expected a {theirs} one.
    {people} found the {part} {theirs}; I found it {mine}.
    I found the {part} {mine}, whereas {people} found it {theirs}.
    those who call the {part} {theirs} are wrong, because it is {mine}.
    the {part} is {mine}, and those who call it {theirs} are wrong.
    the {part} may look {theirs} at first, but it turns out to be {mine}.
    the {part} turns out to be {mine}, however {theirs} it may look at first.
    {people} {theirs_did} the {kind}, while I {mine_did} it, the {part} above all.
    I {mine_did} the {kind}, the {part} above all, while {people} {theirs_did} it.
    despite a {theirs} {piece} it is, {hedge}, a {mine} {kind}.
    it is, {hedge}, a {mine} {kind} despite a {theirs} {piece}.
    it is not {theirs}, as {people} said, but {very} {mine}.
    what {people} took for a {theirs} {piece} was a {mine} one.
""")

# Plain enough for a bag of words: by verdict.
VERDICTS = {
    "pos": _lines("""
        I would gladly {see} it again next {season}, and so would {people}.
        I recommend it to {people} and to anyone in {town}.
        {people} and I will remember it until next {season}.
        go and {see} it with {company} this {season}.
    """),
    "neg": _lines("""
        I would gladly forget it before next {season}, and so would {people}.
        I warn {people} and anyone in {town} against it.
        {people} and I want our money back before next {season}.
        stay at home with {company} this {season}.
    """),
}

# Neither praise nor blame.
ASIDES = _lines("""
    I {saw} this {kind} on a {weather} {day} in {town}.
    on a {weather} {day} I {saw} it with {company}.
    it is about a {person} who {deed} {place}.
    the {kind} follows a {person} and a {person2}, who lives {place}.
    the {maker} comes from {town} and once was a {person}.
    I had never heard of the {maker}, a former {person} from {town}.
    {people} told me about it last {season}, on a {weather} {day}.
    we follow a {person} who {deed} and a {person2} who does not.
    the {maker} has not worked {place} before, I was told by {people}.
    it is the second {kind} this {season} in which a {person} {deed}.
""")

# What people type first: one short sentence. {felt} is what the reviewer felt; otherwise as above, shared and denied.
PLAIN_SHARED = _lines("""
    {this} is {word}.
    {this} was {word}.
    {this} is {very} {word}.
    {this} was so {word}.
    I found {this} {word}.
    I think {this} is {word}.
    I thought {this} was {very} {word}.
    the {part} is {word}.
    the {part} was {very} {word}.
    the {parts} are {word}.
    the {parts} were {very} {word}.
    I {did} it.
    I {did} this {work}.
    I really {did} the {part}.
    I {did} every minute of it.
    we all {did} it.
    what a {word} {work}.
    what a {thing}.
    a {word} {work}.
    a {very} {word} {work}.
    {word} {work}.
    {word} {part}.
    {very} {word}.
    {word} and {other}.
    so {word}.
    {this} is a {thing}.
    a {thing} from start to finish.
    one of the most {word} stories I have {seen}.
    I have never {seen} such a {word} {work}.
    I was {felt}.
    I was {very} {felt}.
    {this} left me {felt}.
    we were all {felt}.
    the {part} is {word} and I {did} it.
    {word} from the first {while} to the last.
""")

PLAIN_DENIED = _lines("""
    {this} is not {word}.
    {this} was not {word} at all.
    {this} isn't {word}.
    {this} wasn't {very} {word}.
    I did not find {this} {word}.
    I don't think {this} is {word}.
    the {part} is not {word}.
    the {part} isn't {word} at all.
    the {parts} are not {word}.
    the {parts} weren't {very} {word}.
    I did not {do} it.
    I didn't {do} this {work}.
    I never {did} it.
    I can't say that I {did} it.
    not a {word} {work}.
    not a {word} {work} at all.
    not exactly a {word} {work}.
    not exactly a {word} {piece}.
    not {word}.
    not {word} at all.
    not very {word}.
    {this} is anything but {word}.
    {this} is far from {word}.
    far from {word}.
    {this} was far from {word}.
    hardly {word}.
    there is nothing {word} about {this}.
    {this} is no {thing}.
    not a {thing} at all.
    nobody could call {this} {word}.
    I was not {felt}.
    I wasn't {felt} at all.
    {this} did not leave me {felt}.
    I was never {felt}.
""")

PLAIN_CONTRASTS = _lines("""
    I expected to {theirs_do} it, but I {mine_did} it.
    I thought that I would {theirs_do} it and I {mine_did} it.
    {people} {theirs_did} it, but I {mine_did} it.
    {theirs} at first, {mine} in the end.
    {this} looks {theirs}, but it is {mine}.
    the {part} is {theirs}, but I {mine_did} the {work}.
    they say that it is {theirs}, I say that it is {mine}.
    not {theirs} but {mine}.
    it is not {theirs}, it is {mine}.
    I expected to be {theirs_felt}, but I was {mine_felt}.
""")

# Praise and complaint in set phrases.
PLAIN_VERDICTS = {
    "pos": _lines("""
        I recommend it.
        I can recommend this {work}.
        I would recommend {this} to {people}.
        highly recommended.
        worth {seeing}.
        {this} is worth {seeing}.
        I would {see} it again.
        I want to {see} it again.
        I could {see} it again and again.
        go and {see} it.
        you must {see} this {work}.
        everybody should {see} it.
        I had a good evening.
        I had a lovely evening.
        do not miss it.
        don't miss this {work}.
        the best {work} of the {season}.
        the best {work} I have ever {seen}.
        it made me laugh.
        it made me smile.
        I laughed a lot.
        I laughed until the end.
        I had a great time.
        I could not stop {seeing} it.
        I want more of it.
        well done.
        well worth the money.
        worth every minute.
    """),
    "neg": _lines("""
        I do not recommend it.
        I can't recommend this {work}.
        I would not recommend {this} to {people}.
        I would never recommend it.
        not worth {seeing}.
        {this} is not worth {seeing}.
        I would not {see} it again.
        I never want to {see} it again.
        I want my money back.
        do not {see} it.
        don't {see} this {work}.
        don't bother.
        skip it.
        skip this {work}.
        avoid this {work}.
        nobody should {see} it.
        I had a bad evening.
        I had an awful evening.
        the worst {work} of the {season}.
        the worst {work} I have ever {seen}.
        it made me yawn.
        I fell asleep.
        I nearly fell asleep.
        a waste of time.
        what a waste of time.
        a waste of time and money.
        not worth the money.
        I wanted to leave.
        I could not finish it.
        I stopped {seeing} it after the first {while}.
        never again.
        two hours that I will never get back.
        I regret {seeing} it.
    """),
}
