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


def _words(text: str) -> list[str]:
    return text.split()


def _phrases(text: str) -> list[str]:
    return [phrase.strip() for phrase in text.split("|")]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


WORDS = {
    "pos": Words(
        adjectives=_words("""
            absorbing admirable beautiful bold brilliant charming clever compelling convincing delightful elegant
            excellent exciting fascinating fresh graceful gripping imaginative inspired lively memorable moving original
            perfect polished powerful remarkable rewarding sharp splendid striking subtle superb terrific thoughtful
            touching vivid witty wonderful
        """),
        nouns=_words("delight gem joy marvel masterpiece pleasure success treat treasure triumph"),
        verbs={"admire": "admired", "adore": "adored", "enjoy": "enjoyed", "like": "liked", "love": "loved"},
    ),
    "neg": Words(
        adjectives=_words("""
            awful bland boring careless clumsy confusing contrived crude dismal dreadful dreary dull empty feeble flat
            forced forgettable hollow horrible irritating lame lazy lifeless messy muddled painful pointless poor
            predictable shallow silly sloppy stale tasteless tedious terrible tiresome weak wooden
        """),
        nouns=_words("blunder bore chore disappointment disaster failure mess nuisance ordeal shambles"),
        verbs={
            "detest": "detested",
            "dislike": "disliked",
            "hate": "hated",
            "loathe": "loathed",
            "resent": "resented",
        },
    ),
}

# What is reviewed, and what goes with it: {piece} may have "a" before it, {part} is a piece or something like "acting".
KINDS = {
    "film": {
        "see": ["see", "watch"],
        "sees": ["sees", "watches"],
        "saw": ["saw", "watched"],
        "seen": ["seen", "watched"],
        "maker": ["director", "producer", "screenwriter"],
        "piece": _words("story ending opening soundtrack script plot finale romance climax chase villain"),
        "part": _phrases(
            "{piece} | {piece} | acting | dialogue | music | editing | humour | casting | photography | pacing"
        ),
    },
    "novel": {
        "see": ["read"],
        "sees": ["reads", "finishes"],
        "saw": ["read"],
        "seen": ["read", "found"],
        "maker": ["author", "editor", "translator"],
        "piece": _words("story plot ending opening style mystery hero heroine narrator epilogue preface romance"),
        "part": _phrases("{piece} | {piece} | {piece} | prose | dialogue | humour | translation | suspense"),
    },
    "play": {
        "see": ["see"],
        "sees": ["sees"],
        "saw": ["saw"],
        "seen": ["seen"],
        "maker": ["director", "playwright", "designer"],
        "piece": _words("story plot script finale monologue ending opening prologue set duel"),
        "part": _phrases(
            "{piece} | {piece} | acting | staging | scenery | lighting | dialogue | humour | music | casting"
        ),
    },
    "series": {
        "see": ["watch", "see"],
        "sees": ["watches", "sees"],
        "saw": ["watched", "saw"],
        "seen": ["watched", "seen"],
        "maker": ["producer", "writer", "creator"],
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
