// 活动列表所说的话，中文。

export default {
  tasks: {
    title: "您可以加入的活动",
    recruits: "这些活动由平台自行接纳参与者，并指定其他服务器：在每个活动中，其他所有人都可能是平台自己，因此无论有多少人参与，都不能在平台面前保护您。",
    none: "目前没有活动从此列表接纳参与者。",
    notLoaded: "无法加载列表。请一分钟后再试。",
    nobody: "未提供姓名的人",
    rounds: { other: "{count} 轮。" },
    unpaid: "没有报酬。",
    budget: "每轮共 {amount}，由所有人分享。",
    places: { other: "还剩 {count} 个名额。" },
    look: "查看并加入",
    program: "仅限 CrowdFL 程序，不适用于手机：任务 {task}",
  },
};
