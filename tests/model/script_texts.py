"""Texts in many scripts and formats, for the tests of continued answers."""

from __future__ import annotations

SPACED = {
    "English": (
        "The harbour was quiet that morning. All the small boats were still asleep between the walls, and nobody on the pier wanted "
        "to wake them. A committee walked across the long bridge and counted every boat twice, first aloud and then in silence. "
        "After that the fog came back from the open sea and covered the whole town until the evening.\n"
    ),
    "German": (
        "Der Hafen lag an diesem Morgen still. Alle kleinen Boote schliefen noch zwischen den Mauern, und niemand auf dem Steg wollte "
        "sie wecken. Ein Ausschuss ging über die lange Brücke und zählte jedes Boot zweimal, erst laut und dann leise. Danach kam der "
        "Nebel vom offenen Meer zurück und bedeckte die ganze Stadt bis zum Abend.\n"
    ),
    "French": (
        "Le port était calme ce matin-là. Tous les petits bateaux dormaient encore entre les murs, et personne sur la jetée ne voulait "
        "les réveiller. Une commission traversa le long pont et compta chaque bateau deux fois, d’abord à voix haute, puis en silence. "
        "Ensuite le brouillard revint du large et couvrit toute la ville jusqu’au soir.\n"
    ),
    "Vietnamese": (
        "Sáng hôm ấy bến cảng rất yên tĩnh. Tất cả những chiếc thuyền nhỏ vẫn còn ngủ giữa các bức tường, và không ai trên cầu tàu "
        "muốn đánh thức chúng. Một nhóm người đi qua cây cầu dài và đếm từng chiếc thuyền hai lần. "
        "Sau đó sương mù trở lại từ biển khơi.\n"
    ),
    "Russian": (
        "В то утро в гавани было тихо. Все маленькие лодки ещё спали между стенами, и никто на причале не хотел их будить. Комиссия "
        "прошла по длинному мосту и дважды пересчитала каждую лодку, сначала вслух, а потом молча. После этого туман вернулся с "
        "открытого моря и накрыл весь город до самого вечера.\n"
    ),
    "Greek": (
        "Το λιμάνι ήταν ήσυχο εκείνο το πρωί. Όλες οι μικρές βάρκες κοιμόνταν ακόμη ανάμεσα στους τοίχους, και κανείς στην αποβάθρα "
        "δεν ήθελε να τις ξυπνήσει. Μια επιτροπή πέρασε τη μακριά γέφυρα και μέτρησε κάθε βάρκα δύο φορές. "
        "Έπειτα η ομίχλη γύρισε από το "
        "ανοιχτό πέλαγος.\n"
    ),
    "Georgian": (
        "იმ დილით ნავსადგურში სიწყნარე იყო. ყველა პატარა ნავს ჯერ კიდევ ეძინა კედლებს შორის, და არავის უნდოდა მათი გაღვიძება. კომისიამ "
        "გადაიარა გრძელი ხიდი და თითოეული ნავი ორჯერ დათვალა. შემდეგ ნისლი დაბრუნდა ღია ზღვიდან და მთელი ქალაქი დაფარა.\n"
    ),
    "Arabic": (
        "كان الميناء هادئا في ذلك الصباح. كانت كل القوارب الصغيرة ما تزال نائمة بين الجدران، ولم يرد أحد على الرصيف أن يوقظها. عبرت "
        "اللجنة الجسر الطويل وعدت كل قارب مرتين، أولا بصوت عال ثم في صمت. بعد ذلك عاد الضباب من البحر المفتوح وغطى المدينة كلها.\n"
    ),
    "Hebrew": (
        "הנמל היה שקט באותו בוקר. כל הסירות הקטנות עוד ישנו בין החומות, ואיש על הרציף לא רצה להעיר אותן. ועדה חצתה את הגשר הארוך וספרה "
        "כל סירה פעמיים, תחילה בקול רם ואחר כך בשתיקה. אחרי כן חזר הערפל מן הים הפתוח וכיסה את כל העיר.\n"
    ),
    "Hindi": (
        "उस सुबह बंदरगाह शांत था। सभी छोटी नावें दीवारों के बीच अभी भी सो रही थीं, और घाट पर कोई उन्हें जगाना नहीं चाहता था। "
        "एक समिति ने लंबा पुल पार किया और हर "
        "नाव को दो बार गिना, पहले ज़ोर से और फिर चुपचाप। उसके बाद खुले समुद्र से कोहरा लौट आया।\n"
    ),
    "Korean": (
        "그날 아침 항구는 조용했다. 작은 배들은 모두 아직 벽 사이에서 잠들어 있었고, 부두의 아무도 그 배들을 깨우고 싶어 하지 않았다. "
        "위원회가 긴 다리를 건너며 "
        "모든 배를 두 번씩 세었다. 그 뒤에 안개가 먼 바다에서 돌아와 저녁까지 온 도시를 덮었다.\n"
    ),
}  # fmt: skip
"""Prose in scripts with spaces between words."""

UNSPACED = {
    "Chinese": (
        "那天早晨港口很安静。所有的小船还在石墙之间睡觉，码头上没有人愿意把它们叫醒。委员会的人走过长长的桥，把每一条船都数了两遍，先是大声地数，然后默默地数。"
        "后来雾又从远处的海面上飘了回来，一直到傍晚都笼罩着整座城市。\n"
        "老渔夫说：“大小不是一切。”他慢慢地走回自己的小咖啡馆，坐在窗边等天亮。\n"
    ),
    "Japanese": (
        "その朝、港はとても静かだった。小さな船はみな石の壁のあいだでまだ眠っていて、桟橋にいる人は誰も起こそうとしなかった。委員会の人たちが長い橋を渡り、"
        "一つ一つの船を二度ずつ数えた。そのあと沖のほうから霧が戻ってきて、夕方まで町じゅうをすっかり包んでしまった。\n"
        "年寄りの漁師は「大きさがすべてではない」と言って、自分の小さな喫茶店へゆっくり帰っていった。\n"
    ),
    "Thai": (
        "เช้าวันนั้นท่าเรือเงียบสงบมาก เรือลำเล็กทุกลำยังคงหลับอยู่ระหว่างกำแพงหิน และไม่มีใครบนท่าเรืออยากจะปลุกเรือเหล่านั้น "
        "คณะกรรมการเดินข้ามสะพานยาวแล้วนับเรือทุกลำสองครั้ง ครั้งแรกนับเสียงดังและครั้งต่อมานับอย่างเงียบๆ "
        "หลังจากนั้นหมอกก็กลับมาจากทะเลเปิดและปกคลุมทั้งเมืองจนถึงตอนเย็น\n"
    ),
}  # fmt: skip
"""Prose in scripts without spaces between words."""

SONGS = {
    "English song": (
        "Row the boat along the stream, gently in the morning\nRow the boat along the stream, gently in the morning\n"
        "Merrily, merrily, merrily, merrily, gently in the morning\nRow the boat along the stream, gently in the evening\n"
    ),
    "Russian song": (
        "Ой, лодочка, лодочка, плыви за туман,\nОй, лодочка, лодочка, плыви за туман,\nТам ждёт меня город, там ждёт океан.\n"
        "Ой, лодочка, лодочка, плыви за туман!\n"
    ),
    "Arabic song": "يا قارب الصباح خذني معك، يا قارب الصباح خذني معك\nيا قارب الصباح خذني معك، يا قارب المساء خذني معك\n",
    "Chinese song": (
        "小船小船慢慢摇，摇过外婆的石头桥。小船小船慢慢摇，摇过外婆的石头桥。\n摇啊摇，摇啊摇，摇过外婆的石头桥，两岸的灯火都睡着了。\n"
        "小船小船慢慢摇小船小船慢慢摇，摇过外婆的石头桥，两岸的灯火都睡着了！哈哈哈哈哈哈哈哈哈哈\n"
        "我说两岸的灯火都睡着了。他说两岸的灯火都睡着了。他说完就走了。\n"
    ),
    "Japanese song": (
        "ゆらゆら小舟、朝の海をゆく、かもめと遊んで、夕べには帰る。ゆらゆら小舟、朝の海をゆく、かもめと遊んで、夕べには帰る。\n"
        "ゆらゆらゆらゆらゆらゆら、港は静かだった。港は静かだった。\nゆらゆら小舟、朝の海をゆく、かもめと眠って、夕べには帰る。\n"
    ),
    "Thai song": (
        "เรือน้อยลอยล่องไปในทะเล เรือน้อยลอยล่องไปในทะเล\nเรือน้อยลอยล่องไปในทะเล พบกันใหม่ในยามเย็น\nพบกันใหม่ในยามเย็น พบกันใหม่ในยามเย็น\n"
    ),
}  # fmt: skip
"""Poems with refrains."""

RECORDS = {
    "SVG path": "M10 20 L30 40 L50 60 L70 80Z" * 2 + "M10 20 L30 40 L50 60 L70 81Z",
    "SVG path with spaces": "M 10 20 L 30 40 C 50 60 S 70 80 Q 1 2 Z" * 2 + "M 10 20 L 30 40 C 50 60 S 70 80 Q 1 3 Z",
    "SVG path in lines": "M10 20\nL30 40\nC50 60\nS70 80\nQ10 12\nT13 14\nH15\nV16\nZ" * 2 + "M10 20\nL30 40\nZ",
    "codes": "AB12 CD34 EF56 GH78 IJ90" * 2 + "AB12 CD34 EF56 GH78 IJ91",
    "codes in capitals": "ABC DEF GHI JKL MNO PQR" * 2 + "ABC DEF GHI JKL MNO PQS",
    "DNA": "ACGTTG CCATGA GGTTAC TTACGA" * 2 + "GGGACT",
    "names and numbers": "name=Anna city=Graz street=Hauptplatz number=801" * 2 + "name=Berta city=Graz",
    "hex": "deadbeef 00ff00ff cafebabe 8badf00d" * 2 + "deadbeef 00ff00fe",
    "fixed width": "ANNA    GRAZ    HAUPT   0001BERTA   LINZ    HAUPT   0002" * 2 + "ANNA    GRAZ    HAUPT   0003",
    "words": ("alpha beta gamma delta epsilon" * 3) + "alpha beta gamma delta epsilom",
    "JSON without line breaks": '{"name": "Anna", "city": "Graz", "moored": true}' * 2 + '{"name": "Berta"}',
    "JSON objects": '{\n  "name": "Anna of the harbour",\n  "city": "Graz am See",\n  "moored": true\n}' * 2 + "{}",
    "XML": '<boat name="Anna of the harbour" city="Graz"><moored/></boat>' * 2 + "<boat/>",
    "minified JavaScript": "function add(first,second){return first+second}" * 2 + "add(1,2);var total=add(3,4);var total=add(3,5)",
    "chess": "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 " * 2 + "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Bxc6\n",
    "base64": "VGhlIGhhcmJvdXIgd2FzIHF1aWV0IHRoYXQgbW9ybmluZy4=" * 2 + "VGhlIGhhcmJvdXI=",
    "log": "2026-11-29 10:00:01 INFO the harbour is quiet\n" * 3 + "2026-11-29 10:00:02 INFO the harbour is awake\n",
    "SQL": "INSERT INTO boats VALUES ('Anna', 'Graz', 1);" * 2 + "INSERT INTO boats VALUES ('Berta', 'Linz', 2);",
    "LaTeX": r"\frac{\alpha + \beta}{\gamma} + \frac{\alpha + \beta}{\gamma} & \sum_{i} x_i & \sum_{i} x_i \\ " * 2,
    "YAML": "- name: Anna of the harbour\n  city: Graz\n- name: Anna of the harbour\n  city: Linz\n",
    "Chinese numbers": "一二三四五六七八九十百千万亿零壹贰叁肆伍陆柒捌玖拾" * 2 + "一二三",
    "Chinese lists": "甲乙丙丁戊己庚辛壬癸" * 2 + "子丑寅卯辰巳午未申酉戌亥" * 2 + "鼠牛虎兔龙蛇马羊猴鸡狗猪" * 2 + "完",
    "Chinese table": "姓名，城市，船的名字，停泊的码头\n" + "张三，格拉茨，安娜，一号码头\n" * 2 + "李四，林茨，安娜，二号码头\n",
    "Japanese syllables": "あいうえおかきくけこ" * 2 + "あいうえおかきくけこさしすせそ" * 2 + "ん",
    "Thai numbers": "หนึ่งสองสามสี่ห้าหกเจ็ดแปดเก้าสิบ๑๒๓๔๕" * 2 + "๑๒๓\n",
}  # fmt: skip
"""Data of which whole records are repeated, many of them without a separator."""
