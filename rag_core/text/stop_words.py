"""Function words, which do not indicate a text's subject, by ISO 639-1 code. They are not stemmed."""

_ENGLISH = """
a about above after again against all also am an and any are as at be because been before being below between both but
by can could d did do does doing down during each few for from further had has have having he her here hers him his how
i if in into is it its itself just ll m me more most my no nor not now of off on once only or other our ours out over
own re s same she should so some such t than that the their theirs them themselves then there these they this those
through to too under until up ve very was we were what when where which while who whom why will with would you your
yours"""
_GERMAN = """
aber alle allem allen aller alles als also am an auch auf aus bei bin bis bist da damit dann das dass dein deine dem den
denn der des dich die dies diese diesem diesen dieser dieses dir doch dort du durch ein eine einem einen einer eines er
es etwas euch euer für gegen hab habe haben hat hatte hatten hier hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im
in ist ja jede jedem jeden jeder jedes jene kann kein keine keinen können man mein meine mich mir mit muss nach nicht
noch nun nur ob oder ohne sehr sein seine seinem seinen seiner sich sie sind so soll über um und uns unser unter vom von
vor war waren warum was weil welche welcher welches wenn wer werden wie wieder will wir wird wo worden wurde wurden zu
zum zur zwischen"""
_FRENCH = """
a ai au aucun aussi aux avec avoir c ce ceci cela ces cet cette ceux chaque ci comme comment d dans de des donc du elle
elles en encore entre es est et étaient était été être eu eux fait font il ils j je l la le les leur leurs lui m ma mais
me même mes moi mon n ne ni nos notre nous on ont ou où par pas peut plus pour pourquoi qu quand que quel quelle quelles
quels qui quoi s sa sans se sera ses si son sont sous sur t ta te tes toi ton tous tout toute toutes très tu un une vos
votre vous y"""
_SPANISH = """
a al algo ante antes como cómo con contra cual cuál cuando cuándo de del desde donde dónde durante e el él ella ellas
ellos en entre era eran es esa esas ese eso esos esta está estaba están estas este esto estos fue fueron ha había han
has hasta hay la las le les lo los más me mi mis muy nada ni no nos nosotros o os otra otras otro otros para pero poco
por porque qué que quien quién quienes se según ser si sí sin sobre son su sus también tan te tiene tienen todo todos tu
tus un una uno unos y ya yo"""
_ITALIAN = """
a ad agli ai al alla alle allo anche c che chi ci come con contro cosa cui d da dagli dai dal dalla dalle dallo degli
dei del dell della delle dello di dove e è ed era erano essere fra gli ha hanno ho i il in io l la le lei li lo loro lui
ma mi mia mio ne negli nei nel nella nelle nello no noi non nostro o ogni per perché però più qual quale quali quando
quanto quella quelle quelli quello questa queste questi questo qui se sei senza si sia sono sta su sua sue sugli sui sul
sulla sulle sullo suo suoi tra tu tutti tutto un una uno vi voi"""
_PORTUGUESE = """
a à ao aos aquela aquelas aquele aqueles aquilo as às até com como da das de dela dele deles depois do dos e é ela elas
ele eles em entre era eram essa essas esse esses esta está estão estas este estes eu foi foram há isso isto já lhe mais
mas me mesmo meu minha muito na não nas nem no nos nós nossa nosso num numa o onde os ou para pela pelas pelo pelos por
porque qual quais quando que quem são se sem ser seu seus só sua suas também te tem têm ter tu um uma você vocês"""
_DUTCH = """
aan al alle als altijd andere ben bij daar dan dat de deze die dit doch door dus een en er ge geen had hadden heb hebben
heeft hem het hier hij hoe hun iemand iets ik in is ja je kan kon maar me meer men met mij mijn moet na naar niet niets
nog nu of om omdat onder ons ook op over te tegen toch toen tot u uit uw van veel voor waar waarom wanneer waren was wat
we wel werd wie wij wordt worden zal ze zelf zich zij zijn zo zonder zou"""

STOP_WORDS = {
    "de": frozenset(_GERMAN.split()),
    "en": frozenset(_ENGLISH.split()),
    "es": frozenset(_SPANISH.split()),
    "fr": frozenset(_FRENCH.split()),
    "it": frozenset(_ITALIAN.split()),
    "nl": frozenset(_DUTCH.split()),
    "pt": frozenset(_PORTUGUESE.split()),
}

ALL_STOP_WORDS = frozenset[str]().union(*STOP_WORDS.values())
"""The stop words of all languages, for a text whose language is not certain."""
